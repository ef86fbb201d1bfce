"""The constructor's Flight service against a fake planner over HTTP and fake loaders over Flight."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from loadmaster_flight.constructor.engine import ConstructorEngine
from loadmaster_flight.constructor.process import ConstructorProcess
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import (
    BadRequestError,
    DataError,
    ForbiddenError,
    GoneError,
    LoadmasterError,
    MeshError,
    MovedError,
    NotReadyError,
    UnauthenticatedError,
    UnavailableError,
    from_flight,
)
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.frames import Frame, FrameFlag
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.slicing import SlicePlace, zigzag_index
from loadmaster_flight.wire.tickets import RankTicket, sign
from support.services import KEY, RUN, FakeLoader, FakePlanner, num_tokens_of, wait_until

Message = tuple[Frame, pa.RecordBatch]
PATIENCE_S = 20.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(stack: ExitStack) -> Callable[..., tuple[FakePlanner, ConstructorProcess]]:
    def make(**options: Any) -> tuple[FakePlanner, ConstructorProcess]:
        planner = stack.enter_context(FakePlanner(**options))
        return planner, stack.enter_context(ConstructorProcess(planner.url))

    return make


def ticket(first_step: int = 0, last_step: int = 4, *, rank: int = 0, **changes: object) -> RankTicket:
    right = RankTicket(
        run=RUN,
        stream="train",
        generation=1,
        rank=rank,
        first_step=first_step,
        last_step=last_step,
        expires_at=time.time() + 60,
    )
    return replace(right, **changes)  # type: ignore[arg-type]


def messages(process: ConstructorProcess, right: RankTicket, *, key: bytes = KEY) -> Iterator[Message]:
    """All messages of a stream; opening is repeated while the constructor is not ready."""
    with FlightPeer(process.service.address) as peer:
        reader = retrying(lambda: peer.open(sign(right, key), timeout_s=PATIENCE_S), deadline_s=PATIENCE_S)
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            except pa.ArrowException as error:
                raise from_flight(error) from error
            yield Frame.unpack(chunk.app_metadata.to_pybytes()), chunk.data


def kinds(found: list[Message]) -> list[tuple[FrameFlag, int]]:
    return [(frame.flags, frame.step) for frame, _ in found if not frame.flags & FrameFlag.HEARTBEAT]


def acknowledge(process: ConstructorProcess, right: RankTicket, step: int) -> None:
    with FlightPeer(process.service.address) as peer:
        peer.action(Action.ACK, {"ticket_hex": sign(right, KEY).hex(), "step": step})


def test_stream_when_the_window_ends_then_the_last_message_says_where_to_go_on(serve: Callable[..., tuple]) -> None:
    _, process = serve()
    found = list(messages(process, ticket(0, 3)))
    assert kinds(found) == [(FrameFlag.LAST, 0), (FrameFlag.LAST, 1), (FrameFlag.LAST, 2), (FrameFlag.WINDOW_END, 3)]
    assert [batch.num_rows for _, batch in found if batch.num_rows] == [2, 2, 2]


def test_stream_when_the_final_step_was_sent_then_the_end_says_how_many_steps_there_were(
    serve: Callable[..., tuple],
) -> None:
    _, process = serve(num_steps=2)
    assert kinds(list(messages(process, ticket(0, 64))))[-1] == (FrameFlag.STREAM_END, 2)


def test_stream_when_it_begins_behind_the_final_step_then_it_ends_at_once(serve: Callable[..., tuple]) -> None:
    _, process = serve(num_steps=2)
    assert kinds(list(messages(process, ticket(2, 66)))) == [(FrameFlag.STREAM_END, 2)]


def test_stream_when_the_loader_is_slow_then_heartbeats_say_what_is_waited_for(serve: Callable[..., tuple]) -> None:
    planner, process = serve()
    planner.loader.gate.clear()
    stream = messages(process, ticket())
    frame, batch = next(stream)
    assert (frame.flags, frame.step, batch.num_rows) == (FrameFlag.HEARTBEAT, 0, 0)
    assert "step 0 waits for 3 pieces from loaders" in frame.text
    planner.loader.gate.set()
    assert next(f for f, _ in stream if not f.flags & FrameFlag.HEARTBEAT).step == 0


def test_stream_when_a_loader_fails_then_heartbeats_tell_its_reason_while_it_is_asked_again(
    serve: Callable[..., tuple],
) -> None:
    planner, process = serve()
    loader = planner.loader

    class Faults(list[LoadmasterError]):
        """Has the loader be slow after its one fault."""

        def pop(self, *_: object) -> LoadmasterError:
            loader.gate.clear()
            return super().pop()

    loader.faults = Faults([UnavailableError("source prose, shard 1 cannot be read")])
    stream = messages(process, ticket())
    wait_until(lambda: len(loader.tickets) == 2, "a second try")
    frame = next(stream)[0]
    assert frame.flags & FrameFlag.HEARTBEAT
    assert "source prose, shard 1 cannot be read" in frame.text
    loader.gate.set()
    assert next(f for f, _ in stream if not f.flags & FrameFlag.HEARTBEAT).step == 0


def test_stream_when_another_rank_lags_then_heartbeats_name_it(serve: Callable[..., tuple]) -> None:
    _, process = serve(world_size=2)
    found = []
    for frame, _ in messages(process, ticket(0, 8)):
        found.append(frame)
        if frame.flags & FrameFlag.HEARTBEAT and frame.step == 3:
            break
        if frame.step < 3:
            acknowledge(process, ticket(), frame.step + 1)
    assert re.search(r"step 3 waits for rank 1, which is at step 0 for \d+ s", found[-1].text)


def test_stream_when_every_rank_acknowledged_a_step_then_it_is_gone(serve: Callable[..., tuple]) -> None:
    _, process = serve()
    assert len(kinds(list(messages(process, ticket(0, 3))))) == 4
    acknowledge(process, ticket(), 2)
    with pytest.raises(GoneError, match=f"step 1 of stream train of run {RUN} is gone: all ranks have acknowledged 2"):
        next(messages(process, ticket(1, 3)))
    assert kinds(list(messages(process, ticket(2, 3)))) == [(FrameFlag.LAST, 2), (FrameFlag.WINDOW_END, 3)]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 0}, GoneError),
        ({"generation": 2}, NotReadyError),
        ({"rank": 7}, ForbiddenError),
        ({"stream": "eval"}, MovedError),
        ({"expires_at": 1.0}, UnauthenticatedError),
    ],
)
def test_stream_when_the_ticket_is_for_something_else_then_it_is_refused(
    changes: dict[str, object], error: type[LoadmasterError], serve: Callable[..., tuple]
) -> None:
    _, process = serve()
    next(messages(process, ticket()))
    with FlightPeer(process.service.address) as peer, pytest.raises(error):
        peer.open(sign(replace(ticket(), **changes), KEY), timeout_s=PATIENCE_S)


def test_stream_when_the_ticket_is_forged_then_it_is_refused(serve: Callable[..., tuple]) -> None:
    _, process = serve()
    next(messages(process, ticket()))
    with FlightPeer(process.service.address) as peer, pytest.raises(UnauthenticatedError, match="signature"):
        peer.open(sign(ticket(), b"another key"), timeout_s=PATIENCE_S)


def test_stream_when_a_loader_fails_for_a_while_then_the_step_is_built_still(serve: Callable[..., tuple]) -> None:
    planner, process = serve()
    planner.loader.faults += [UnavailableError("no memory"), UnavailableError("no memory")]
    assert kinds(list(messages(process, ticket(0, 1)))) == [(FrameFlag.LAST, 0), (FrameFlag.WINDOW_END, 1)]


def test_stream_when_the_loader_is_replaced_then_new_routes_are_taken(
    serve: Callable[..., tuple], stack: ExitStack
) -> None:
    planner, process = serve()
    list(messages(process, ticket(0, 1)))
    planner.loader.stop()
    new = FakeLoader(planner)
    stack.callback(new.stop)
    planner.route_to(new)
    acknowledge(process, ticket(), 3)
    assert kinds(list(messages(process, ticket(3, 6))))[-1] == (FrameFlag.WINDOW_END, 6)
    assert new.tickets


def test_stream_when_partitions_are_spread_then_every_loader_is_asked_for_its_own(
    serve: Callable[..., tuple], stack: ExitStack
) -> None:
    planner, process = serve(num_bins=8)
    whole = [batch for _, batch in messages(process, ticket(0, 2)) if batch.num_rows]
    others = [FakeLoader(planner) for _ in range(2)]
    for other in others:
        stack.callback(other.stop)
    planner.route_to(*others)
    planner.generation = 2
    parts = [batch for _, batch in messages(process, ticket(0, 2, generation=2)) if batch.num_rows]
    assert parts == whole
    assert {tuple(p[1:]) for other in others for t in other.tickets for p in t.partitions} == {(0, 2), (1, 2)}


def test_stream_when_content_fails_for_good_then_the_reader_is_told_and_a_new_one_tries_again(
    serve: Callable[..., tuple],
) -> None:
    planner, process = serve()
    planner.loader.faults += [DataError("source prose, shard 0, row 4: cannot be decoded")] * 100
    with pytest.raises(DataError, match=r"loader grpc://.*: source prose, shard 0, row 4"):
        list(messages(process, ticket(0, 1)))
    planner.loader.faults.clear()
    assert kinds(list(messages(process, ticket(0, 1))))[0] == (FrameFlag.LAST, 0)


def first_batches(process: ConstructorProcess, num_ranks: int) -> list[pa.RecordBatch]:
    """Each rank's batch of step 0 in generation 2."""
    read = [messages(process, ticket(0, 1, generation=2, rank=rank)) for rank in range(num_ranks)]
    return [next(batch for _, batch in found if batch.num_rows) for found in read]


def test_stream_when_the_mesh_has_cp_then_each_rank_gets_its_slice(serve: Callable[..., tuple]) -> None:
    planner, process = serve(world_size=2)
    planner.mesh = {"pp": 1, "dp": 1, "cp": 2, "tp": 1}
    planner.generation = 2
    low, high = first_batches(process, 2)
    assert [SlicePlace.from_metadata(batch.schema.metadata).cp_rank for batch in (low, high)] == [0, 1]
    assert low.column("cu_seqlens").equals(high.column("cu_seqlens"))
    (ends, *_), (tokens, *_) = low.column("cu_seqlens").to_pylist(), low.column("tokens").to_numpy_ndarray()
    assert tokens.tolist() == tokens_at(0, seq_len=32)[zigzag_index(np.array(ends), 2, 0)].tolist()


def tokens_at(pos: int, *, seq_len: int) -> np.ndarray:
    """A microbatch that holds the sample of a position alone."""
    tokens = np.zeros(seq_len, np.int64)
    tokens[: num_tokens_of(pos)] = 1000 * pos + np.arange(num_tokens_of(pos))
    return tokens


def test_stream_when_cp_does_not_divide_align_then_it_is_refused_by_that_name(serve: Callable[..., tuple]) -> None:
    planner, process = serve(world_size=4)
    planner.mesh = {"pp": 1, "dp": 1, "cp": 4, "tp": 1}
    planner.generation = 2
    with pytest.raises(MeshError, match=r"divisible by 2\*cp = 8, got 4: raise batch\.align"):
        list(messages(process, ticket(0, 1, generation=2)))


def test_stream_when_tp_ranks_share_a_stage_then_they_read_the_same_batch(serve: Callable[..., tuple]) -> None:
    planner, process = serve(world_size=4)
    planner.mesh = {"pp": 2, "dp": 1, "cp": 1, "tp": 2}
    planner.generation = 2
    batches = first_batches(process, 4)
    assert batches[0].equals(batches[1])
    assert batches[2].equals(batches[3])
    assert {"tokens", "labels"} & set(batches[0].schema.names) == {"tokens"}
    assert {"tokens", "labels"} & set(batches[2].schema.names) == {"labels"}


def test_stream_when_tp_mode_is_broadcast_then_only_tp_rank_0_fetches_and_holds_the_window(
    serve: Callable[..., tuple],
) -> None:
    planner, process = serve(world_size=2)
    planner.mesh, planner.tp_mode = {"pp": 1, "dp": 1, "cp": 1, "tp": 2}, "broadcast"
    planner.generation = 2
    stream = messages(process, ticket(0, 8, generation=2))
    for step in range(6):
        assert next(f for f, _ in stream if not f.flags & FrameFlag.HEARTBEAT).step == step
        acknowledge(process, ticket(0, 8, generation=2), step + 1)
    with pytest.raises(BadRequestError, match="rank 1 must get its batches from tp rank 0"):
        next(messages(process, ticket(5, 8, generation=2, rank=1)))


def test_stream_when_the_generation_changes_then_running_streams_are_told(serve: Callable[..., tuple]) -> None:
    planner, process = serve()
    planner.planned = 1
    stream = messages(process, ticket(0, 8))
    assert next(f for f, _ in stream if not f.flags & FrameFlag.HEARTBEAT).step == 0
    planner.generation = 2
    with pytest.raises(GoneError, match="generation 1 of run demo is over, 2 is current"):
        list(stream)


def test_close_when_a_stream_waits_then_it_ends_with_a_retryable_error(serve: Callable[..., tuple]) -> None:
    planner, process = serve()
    planner.planned = 1
    stream = messages(process, ticket(0, 8))
    assert next(f for f, _ in stream if not f.flags & FrameFlag.HEARTBEAT).step == 0
    process.close()
    with pytest.raises(UnavailableError, match="shutting down"):
        list(stream)


def test_budget_when_it_is_below_one_step_then_steps_come_one_by_one(serve: Callable[..., tuple]) -> None:
    planner, process = serve()
    planner.budgets = {"build_bytes": 1 << 16}
    planner.seq_len_at = lambda step: 1 << 16
    planner.generation = 2
    right, steps = ticket(0, 6, generation=2), []
    for frame, _ in messages(process, right):
        if frame.flags & FrameFlag.LAST:
            steps.append(frame.step)
            assert process.engine.stats()["built_bytes"] < 2 * 3 * (1 << 16) * 4
            acknowledge(process, right, frame.step + 1)
    assert steps == list(range(6))


def test_ack_when_the_ticket_has_expired_then_it_counts_still(serve: Callable[..., tuple]) -> None:
    _, process = serve()
    list(messages(process, ticket(0, 1)))
    acknowledge(process, ticket(expires_at=1.0), 1)
    assert process.engine.progress()[0].step == 1


@pytest.mark.parametrize("body", [{}, {"ticket_hex": 3, "step": 1}, {"ticket_hex": "zz", "step": 1}])
def test_ack_when_the_body_is_wrong_then_it_is_refused(body: dict[str, object], serve: Callable[..., tuple]) -> None:
    _, process = serve()
    with FlightPeer(process.service.address) as peer, pytest.raises(BadRequestError):
        peer.action(Action.ACK, body)


def test_actions_when_asked_then_health_says_when_it_ends_and_new_streams_are_refused(
    serve: Callable[..., tuple],
) -> None:
    _, process = serve()
    next(messages(process, ticket()))
    with FlightPeer(process.service.address) as peer:
        assert peer.action(Action.HEALTH) == {"status": "ok"}
        process.service.draining.set()
        assert peer.action(Action.HEALTH) == {"status": "draining"}
        with pytest.raises(UnavailableError, match="shutting down"):
            peer.open(sign(ticket(), KEY), timeout_s=PATIENCE_S)


def test_ack_when_nobody_can_have_consumed_that_much_then_it_is_refused(serve: Callable[..., tuple]) -> None:
    _, process = serve(num_steps=8)
    right = ticket(0, 64)
    next(messages(process, right))
    with pytest.raises(BadRequestError, match=r"consumed the steps before \d+ at most, got 1000000000"):
        acknowledge(process, right, 10**9)
    assert kinds(list(messages(process, ticket(0, 1)))) == [(FrameFlag.LAST, 0), (FrameFlag.WINDOW_END, 1)]


def test_ack_when_another_constructor_had_bound_that_much_then_the_planner_is_asked(
    serve: Callable[..., tuple],
) -> None:
    planner, process = serve(num_steps=60)
    assert RunSpec.model_validate(planner.spec()).budgets.bind_ahead < 30
    next(messages(process, ticket(0, 64)))
    acknowledge(process, ticket(0, 64), 30)
    assert kinds(list(messages(process, ticket(30, 32))))[0] == (FrameFlag.LAST, 30)


def test_stream_when_no_plans_are_given_out_any_more_then_those_ahead_are_served(serve: Callable[..., tuple]) -> None:
    planner, process = serve(num_steps=60)
    for frame, _ in messages(process, ticket(0, 64)):
        if frame.flags & FrameFlag.HEARTBEAT:
            continue
        acknowledge(process, ticket(0, 64), frame.step + 1)
        if frame.step == 10:
            wait_until(lambda: _plans_asked_for(planner) >= 30, "a request for later plans")
        if frame.step == 12:
            planner.plan_fault = UnavailableError("no planner is there")
        if frame.step == 27:
            return
    raise AssertionError("the stream ended before step 27")


def test_stream_when_the_planner_is_away_for_long_then_what_is_bound_is_served_and_then_the_rank_is_sent_to_ask(
    serve: Callable[..., tuple],
) -> None:
    planner, process = serve(lease_s=0.2)
    stream = (frame for frame, _ in messages(process, ticket(0, 64)))
    assert next(frame for frame in stream if not frame.flags & FrameFlag.HEARTBEAT).step == 0
    acknowledge(process, ticket(0, 64), 1)
    wait_until(lambda: _plans_asked_for(planner) >= 24, "a request for the plans ahead")
    planner.outage = UnavailableError("no planner is there")
    wait_until(lambda: process.link.is_cut_off, "two leases to pass")
    served: list[int] = []

    def read_on() -> None:
        for frame in stream:
            if not frame.flags & FrameFlag.HEARTBEAT:
                served.append(frame.step)
                acknowledge(process, ticket(0, 64), frame.step + 1)

    with pytest.raises(MovedError, match="cut off from the planner: ask it who serves the rank now"):
        read_on()
    assert served == list(range(1, 1 + len(served)))
    assert len(served) >= 22
    planner.outage = None
    assert kinds(list(messages(process, ticket(30, 32))))[-1] == (FrameFlag.WINDOW_END, 32)


def _plans_asked_for(planner: FakePlanner) -> int:
    return max((int(query["last"]) for path, query in planner.requests if path.endswith("/plans")), default=0)


def test_ticket_when_the_planner_has_not_told_of_its_stream_yet_then_the_planner_is_asked_at_once(
    stack: ExitStack,
) -> None:
    planner, asked = stack.enter_context(FakePlanner()), list[str]()
    engine = ConstructorEngine(
        PlannerClient(planner.url), ticket_key=lambda: KEY, on_advance=lambda: asked.append("planner")
    )
    stack.callback(engine.close)
    with pytest.raises(MovedError, match="is not served here: ask again"):
        engine.reader(ticket())
    assert asked == ["planner"]


def test_stream_when_its_rank_opens_another_further_on_then_it_ends_instead_of_waiting(
    serve: Callable[..., tuple],
) -> None:
    _, process = serve(num_steps=64)
    stream = messages(process, ticket(0, 64))
    assert next(frame for frame, _ in stream if not frame.flags & FrameFlag.HEARTBEAT).step == 0
    list(messages(process, ticket(40, 41)))
    with pytest.raises(MovedError, match="rank 0 is at step 40 or later by another stream"):
        list(stream)
