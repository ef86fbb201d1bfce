"""A rank's stream, over real HTTP and real Flight with a real constructor."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

from loadmaster import Batch, Stream
from loadmaster_flight.constructor.process import ConstructorProcess
from loadmaster_flight.wire.errors import (
    BadRequestError,
    DeadlineError,
    GoneError,
    NotFoundError,
    RunPausedError,
    UnavailableError,
)
from support.services import FakePlanner, num_tokens_of, wait_until

MakePlanner = Callable[..., FakePlanner]
MakeConstructor = Callable[[FakePlanner], ConstructorProcess]
Connect = Callable[..., Stream]


def take(stream: Stream, num: int) -> list[Batch]:
    return list(itertools.islice(stream, num))


def test_stream_when_read_to_its_end_then_every_sample_comes_once_in_order(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner(num_steps=20, world_size=2)
    make_constructor(planner)
    streams = [connect(planner, rank=rank) for rank in range(2)]
    for stream in streams:
        stream.start()
    steps = [list(pair) for pair in zip(*streams, strict=True)]
    assert [batch.step for batch, _ in steps] == list(range(20))
    for step, batches in enumerate(steps):
        ids = sorted(sid for batch in batches for sid in batch.sample_ids)
        assert ids == sorted(f"{['prose', 'code'][pos % 2]}/0/0/{pos}@0" for pos in range(3 * step, 3 * step + 3))
        assert sum(b.num_tokens for b in batches) == sum(num_tokens_of(p) for p in range(3 * step, 3 * step + 3))
    with pytest.raises(StopIteration):
        next(streams[0])


def test_stream_when_read_to_its_end_then_all_steps_are_acknowledged(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner(num_steps=5)
    make_constructor(planner)
    assert len(list(connect(planner))) == 5
    wait_until(lambda: planner.acknowledged == 5, "the last acknowledgement")


def test_stream_when_a_batch_is_not_followed_by_another_then_it_is_not_acknowledged(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    constructor = make_constructor(planner)
    stream = connect(planner)
    take(stream, 3)
    wait_until(lambda: planner.acknowledged == 2, "the acknowledgement of steps 0 and 1")
    stream.close()
    assert constructor.engine.progress()[0].step == 2


def test_state_dict_when_batches_are_prefetched_then_it_names_the_next_to_be_consumed(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner, prefetch=4)
    assert stream.state_dict() == {"run": None, "stream": "train", "generation": -1, "step": 0}
    take(stream, 3)
    assert stream.state_dict() == {"run": "demo", "stream": "train", "generation": 1, "step": 3}


@pytest.mark.parametrize("way", ["connect", "load_state_dict"])
def test_stream_when_resumed_from_a_state_then_it_goes_on_with_the_same_bytes(
    way: str, make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    make_constructor(planner)
    first = connect(planner)
    batches = take(first, 2)
    state = first.state_dict()
    batches += take(first, 3)
    first.close()
    second = connect(planner, resume=state) if way == "connect" else connect(planner)
    if way == "load_state_dict":
        second.load_state_dict(state)
    again = take(second, 3)
    assert [b.step for b in again] == [2, 3, 4]
    assert [b.digest() for b in again] == [b.digest() for b in batches[2:]]
    joined = [body for path, body in planner.requests if path.endswith("/join")]
    assert (joined[-1]["step"], joined[-1]["parent"]) == (2, 1)
    assert second.state_dict()["generation"] == 2


def test_load_state_dict_when_something_was_fetched_then_it_is_refused(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner)
    next(stream)
    with pytest.raises(BadRequestError, match="before the first batch"):
        stream.load_state_dict(stream.state_dict())


def test_stream_when_the_constructor_restarts_on_another_port_then_no_step_is_lost_or_repeated(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner(num_steps=30)
    old = make_constructor(planner)
    stream = connect(planner)
    batches = take(stream, 7)
    old.close()
    wait_until(lambda: not planner.constructors, "the old constructor to leave")
    make_constructor(planner)
    batches += list(stream)
    assert [b.step for b in batches] == list(range(30))


def test_stream_when_the_planner_is_away_where_a_window_ends_then_the_next_one_is_read_meanwhile(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner(num_steps=30)
    make_constructor(planner)
    stream = connect(planner)
    batches = take(stream, 6)
    wait_until(lambda: _tickets_asked_for(planner) == [0, planner.window_steps], "the ticket of the next window")
    planner.outage = UnavailableError("no planner is there")
    batches += take(stream, 2 * planner.window_steps - 6)
    planner.outage = None
    batches += list(stream)
    assert [b.step for b in batches] == list(range(30))


def _tickets_asked_for(planner: FakePlanner) -> list[int]:
    return [body["first_step"] for path, body in planner.requests if path.endswith("/tickets")]


def test_stream_when_c_ramps_then_the_same_ticket_position_goes_on(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner(num_steps=8)
    planner.seq_len_at = lambda step: 32 if step < 3 else 48
    make_constructor(planner)
    assert [b.tokens.shape[1] for b in connect(planner)] == [32] * 3 + [48] * 5


def test_stream_when_ranks_are_missing_then_the_error_names_them_and_the_rank_and_step(
    make_planner: MakePlanner, connect: Connect
) -> None:
    planner = make_planner(world_size=4)
    planner.absent = [2, 3]
    with pytest.raises(DeadlineError, match=r"rank 1: .* did not open at step 0 within 0\.3 s: .*ranks 2, 3"):
        next(connect(planner, rank=1, timeout_s=0.3))


def test_stream_when_there_is_no_planner_then_the_error_says_where_it_was_sought(
    make_planner: MakePlanner, connect: Connect
) -> None:
    planner = make_planner()
    planner.close()
    with pytest.raises(DeadlineError, match=rf"rank 0: stream train .*{planner.url}"):
        next(connect(planner, timeout_s=0.3))


def test_stream_when_a_step_is_not_planned_then_the_error_says_so_and_the_stream_can_be_asked_again(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    planner.planned = 2
    make_constructor(planner)
    stream = connect(planner, timeout_s=2.5)
    take(stream, 2)
    with pytest.raises(
        DeadlineError, match=r"rank 0: step 2 of stream train .*: step 2 (waits for its plan|is not planned yet)"
    ):
        next(stream)
    planner.planned = 4
    assert next(stream).step == 2


def test_stream_when_the_run_is_paused_then_the_reason_reaches_the_rank(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    planner.plan_fault = RunPausedError("source prose has 25 bad rows in the last 100")
    make_constructor(planner)
    with pytest.raises(RunPausedError, match="source prose has 25 bad rows"):
        next(connect(planner))


def test_stream_when_its_generation_is_fenced_then_the_error_says_what_to_do(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner)
    take(stream, 2)
    planner.generation = 2
    with pytest.raises(GoneError, match=r"start again from your last checkpoint: connect\(\.\.\., resume=state\)"):
        list(stream)


def test_stream_when_the_run_is_unknown_then_the_planner_says_so(make_planner: MakePlanner, connect: Connect) -> None:
    with pytest.raises(NotFoundError, match="there is no run 'other'"):
        next(connect(make_planner(), run="other"))


def test_close_when_batches_were_fetched_then_no_thread_is_left(
    make_planner: MakePlanner,
    make_constructor: MakeConstructor,
    connect: Connect,
    reader_threads: Callable[[], list[str]],
) -> None:
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner)
    next(stream)
    assert len(reader_threads()) == 2
    stream.close()
    stream.close()
    assert reader_threads() == []
    with pytest.raises(BadRequestError, match="closed"):
        next(stream)


def test_close_when_the_stream_waits_for_others_then_no_thread_is_left(
    make_planner: MakePlanner, connect: Connect, reader_threads: Callable[[], list[str]]
) -> None:
    planner = make_planner(world_size=2)
    planner.absent = [1]
    stream = connect(planner)
    stream.start()
    wait_until(lambda: any(path.endswith("/join") for path, _ in planner.requests), "a join")
    stream.close()
    assert reader_threads() == []


def test_stats_when_steps_were_fetched_then_they_are_counted(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner)
    batches = take(stream, 3)
    assert stream.stats.num_steps == 3
    assert stream.stats.num_tokens == sum(b.num_tokens for b in batches)
    assert stream.stats.total_wait_ms >= stream.stats.wait_ms > 0
    assert stream.source_names == ["prose", "code"]
    assert stream.coords == {"pp": 0, "dp": 0, "cp": 0, "tp": 0}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_stream_when_used_in_a_forked_child_then_it_is_refused(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner)
    next(stream)
    pid = os.fork()
    if pid == 0:
        os._exit(_code_of_use(stream))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert next(stream).step == 1


def _code_of_use(stream: Any) -> int:
    try:
        next(stream)
    except BadRequestError as error:
        return 7 if "fork" in error.message else 8
    return 9
