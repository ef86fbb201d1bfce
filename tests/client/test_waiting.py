"""What a rank learns of the others and of what it waits for, over real HTTP and real Flight."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import loadmaster
from loadmaster import Batch, Stream, acknowledge
from loadmaster_flight.constructor.process import ConstructorProcess
from loadmaster_flight.wire.control import RankReport
from loadmaster_flight.wire.errors import DataError, DeadlineError, GoneError
from support.proxy import Proxy, port_of
from support.services import FakePlanner, wait_until

MakePlanner = Callable[..., FakePlanner]
MakeConstructor = Callable[[FakePlanner], ConstructorProcess]
Connect = Callable[..., Stream]


@pytest.fixture
def make_proxy(stack: ExitStack) -> Callable[..., Proxy]:
    return lambda address, cuts=None: stack.enter_context(Proxy(port_of(address), cuts))


def take(stream: Iterator[Batch], num: int) -> list[Batch]:
    return list(itertools.islice(stream, num))


def ranks_of(constructor: ConstructorProcess) -> RankReport:
    return constructor.engine.progress()[0].ranks


def test_stream_when_another_rank_stands_still_then_the_deadline_error_names_it(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner(world_size=2)
    make_constructor(planner)
    next(connect(planner, rank=1))
    stream = connect(planner, rank=0, timeout_s=3.0)
    with pytest.raises(
        DeadlineError,
        match=r"rank 0: step 3 of stream train .* 3 s: step 3 waits for rank 1, which is at step 0 for \d s",
    ):
        list(stream)


def test_stream_when_the_planner_knows_whom_all_wait_for_then_the_deadline_error_says_it(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    planner.planned, planner.waiting_text = 2, "rank 7, last seen 40 s ago"
    make_constructor(planner)
    with pytest.raises(DeadlineError, match=r"step 2 .* 2\.5 s: step 2 .*; rank 7, last seen 40 s ago"):
        list(connect(planner, timeout_s=2.5))


def test_stream_when_its_generation_is_over_then_it_says_so_though_batches_are_left(
    make_planner: MakePlanner,
    make_constructor: MakeConstructor,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acknowledge, "BEAT_S", 0.05)
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner, prefetch=2)
    next(stream)
    feed: Any = stream._feed
    wait_until(lambda: len(feed._ready) == 2, "two batches ahead")
    planner.generation = 2
    wait_until(lambda: feed._failure is not None, "the failure")
    with pytest.raises(GoneError, match=r"start again from your last checkpoint"):
        next(stream)


def test_stream_when_a_step_cannot_be_built_then_the_batches_before_it_still_come(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner()
    planner.planned = 2
    make_constructor(planner)
    stream = connect(planner, prefetch=4)
    next(stream)
    feed: Any = stream._feed
    wait_until(lambda: feed._ready, "the batch before it")
    planner.plan_fault = DataError("source prose, shard 1, row 7 cannot be read")
    wait_until(lambda: feed._failure is not None, "the failure")
    assert next(stream).step == 1
    with pytest.raises(DataError, match="row 7"):
        next(stream)


def test_acknowledgements_when_a_training_step_is_long_then_the_rank_is_heard_of_all_the_same(
    make_planner: MakePlanner,
    make_constructor: MakeConstructor,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acknowledge, "BEAT_S", 0.05)
    planner = make_planner()
    constructor = make_constructor(planner)
    take(stream := connect(planner), 3)
    wait_until(lambda: ranks_of(constructor).acknowledged == [2], "the acknowledgement")
    wait_until(lambda: ranks_of(constructor).moved_s[0] > 1.0, "a second of training")
    wait_until(lambda: ranks_of(constructor).seen_s[0] < 0.5, "a sign of life")
    assert stream.stats.num_steps == 3


def test_close_when_a_stream_is_closed_then_the_constructor_knows_that_the_rank_is_not_dead(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    constructor = make_constructor(planner := make_planner())
    with connect(planner) as stream:
        next(stream)
        assert ranks_of(constructor).left == []
    assert ranks_of(constructor).left == [0]


def test_close_when_the_rank_has_moved_since_its_last_step_then_the_new_constructor_knows(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    planner = make_planner(num_steps=4)
    last = make_constructor(planner)
    stream = connect(planner)
    assert len(list(stream)) == 4
    last.engine.close()
    now = make_constructor(planner)
    stream.close()
    assert (ranks_of(now).left, ranks_of(now).acknowledged) == ([0], [4])


def test_exit_when_the_training_loop_raises_then_the_rank_does_not_leave_in_peace(
    make_planner: MakePlanner, make_constructor: MakeConstructor, connect: Connect
) -> None:
    constructor = make_constructor(planner := make_planner())
    with pytest.raises(ZeroDivisionError):
        _fail_while_reading(connect(planner))
    assert ranks_of(constructor).left == []


def test_stream_when_it_is_let_go_of_then_its_threads_end(
    make_planner: MakePlanner, make_constructor: MakeConstructor, reader_threads: Callable[[], list[str]]
) -> None:
    make_constructor(planner := make_planner())
    stream = loadmaster.connect(planner.url, rank=0, world_size=1, framework="numpy")
    next(stream)
    assert len(reader_threads()) == 2
    del stream
    wait_until(lambda: not reader_threads(), "both threads to end")


def test_stream_when_connections_are_reset_in_the_middle_of_batches_then_no_step_is_lost_or_repeated(
    make_planner: MakePlanner,
    make_constructor: MakeConstructor,
    connect: Connect,
    make_proxy: Callable[..., Proxy],
) -> None:
    planner = make_planner(num_steps=40)
    constructor = make_constructor(planner)
    expected = [batch.digest() for batch in connect(planner)]
    planner.generation, planner.acknowledged = 2, 0
    proxy = make_proxy(constructor.service.address, [4000 + 1500 * i for i in range(12)])
    planner.constructors = dict.fromkeys(planner.constructors, f"grpc://127.0.0.1:{proxy.port}")
    batches = list(connect(planner))
    assert proxy.num_cut >= 6
    assert [batch.step for batch in batches] == list(range(40))
    assert [batch.digest() for batch in batches] == expected


def test_stream_when_its_constructor_cannot_be_reached_then_the_error_names_it_and_it_goes_on_later(
    make_planner: MakePlanner,
    make_constructor: MakeConstructor,
    connect: Connect,
    make_proxy: Callable[..., Proxy],
) -> None:
    planner = make_planner(num_steps=20)
    constructor = make_constructor(planner)
    proxy = make_proxy(constructor.service.address)
    address = f"grpc://127.0.0.1:{proxy.port}"
    planner.constructors = dict.fromkeys(planner.constructors, address)
    stream = connect(planner, timeout_s=2.0, prefetch=1)
    batches = take(stream, 4)
    proxy.pause()
    with pytest.raises(DeadlineError, match=rf"rank 0: step \d+ .* 2 s: constructor {address}: "):
        _read_on(stream, batches)
    proxy.resume()
    _read_patiently(stream, batches)
    assert [batch.step for batch in batches] == list(range(20))


def test_stream_when_the_planner_is_away_then_the_error_names_it_and_it_goes_on_later(
    make_planner: MakePlanner,
    make_constructor: MakeConstructor,
    connect: Connect,
    make_proxy: Callable[..., Proxy],
) -> None:
    planner = make_planner(num_steps=20)
    make_constructor(planner)
    proxy = make_proxy(planner.url)
    url = f"http://127.0.0.1:{proxy.port}"
    with loadmaster.connect(url, rank=0, world_size=1, framework="numpy", timeout_s=2.0) as stream:
        batches = take(stream, 2)
        proxy.pause()
        with pytest.raises(DeadlineError, match=rf"rank 0: step 8 .* 2 s: planner {url}: POST .*/tickets"):
            _read_on(stream, batches)
        proxy.resume()
        _read_patiently(stream, batches)
    assert [batch.step for batch in batches] == list(range(20))


def _fail_while_reading(stream: Stream) -> None:
    with stream:
        _ = next(stream).step / 0


def _read_on(stream: Stream, batches: list[Batch]) -> None:
    """Add all that comes to `batches`."""
    for batch in stream:
        batches.append(batch)  # what came before an error must be there


def _read_patiently(stream: Stream, batches: list[Batch]) -> None:
    """The same, however often it takes too long."""
    for _ in range(20):
        try:
            return _read_on(stream, batches)
        except DeadlineError:
            continue
    raise AssertionError("it never went on")
