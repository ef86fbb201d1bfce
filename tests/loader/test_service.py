"""The service over real Flight on loopback, with a planner that is a real HTTP server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from loadmaster_flight.loader import service as service_module
from loadmaster_flight.loader.process import LoaderProcess
from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.control import StreamProgress
from loadmaster_flight.wire.errors import (
    BadRequestError,
    BusyError,
    ConflictError,
    ForbiddenError,
    MovedError,
    NotFoundError,
    NotReadyError,
    SourceError,
    UnauthenticatedError,
)
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.schemas import METADATA, PIECES, Verdict
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_flight.wire.tickets import MaterializeTicket, MeasureTicket, RankTicket, Ticket, sign

RUN = "small"


class Bench:
    """A loader in this process, its planner, and a client."""

    def __init__(self, planner: Any) -> None:
        self.planner = planner
        self.loader = LoaderProcess(planner.url, workers=2)
        self.peer = FlightPeer(self.loader.service.address)
        assert self.loader.link.wait_registered(20)

    def read(self, ticket: Ticket, *, key: bytes | None = None) -> pa.Table:
        return self.peer.read_all(sign(ticket, key or self.planner.key), timeout_s=60)

    def measure(self, source: int, lanes: int, rows: int) -> list[dict[str, Any]]:
        table = self.read(measure_ticket(source=source, cursors=[[lane, 0, 0, 0] for lane in range(lanes)], rows=rows))
        assert table.schema.equals(METADATA)
        return [row for row in table.to_pylist() if row["verdict"] == Verdict.OK]

    def close(self) -> None:
        self.peer.close()
        self.loader.close()


def measure_ticket(*, source: int, cursors: list[list[int]], rows: int, run: str = RUN) -> MeasureTicket:
    until = time.time() + 60
    return MeasureTicket(run=run, source=source, epoch=0, cursors=cursors, rows_per_lane=rows, expires_at=until)


def materialize_ticket(*plans: StepPlan, **changes: Any) -> MaterializeTicket:
    ticket = MaterializeTicket(
        run=RUN,
        stream="train",
        generation=1,
        first_step=plans[0].step,
        last_step=plans[-1].step + 1,
        digests=[plan.digest for plan in plans],
        dp_ranks=[0],
        partitions=[[0, 0, 1]],
        expires_at=time.time() + 60,
    )
    return replace(ticket, **changes)


@pytest.fixture
def make_bench(make_run: Any, make_planner: Any) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(**arguments: Any) -> Bench:
        benches.append(Bench(make_planner(make_run(**arguments))))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def test_measure_when_ticket_is_good_answers_metadata(make_bench: Any, make_engine: Any) -> None:
    ticket = measure_ticket(source=1, cursors=[[0, 0, 0, 0], [1, 0, 0, 3]], rows=12)
    expected = make_engine().measure(1, 0, ticket.cursors, 12)
    assert make_bench().read(ticket).combine_chunks().to_batches()[0].equals(expected)


def test_materialize_when_plan_agrees_streams_steps_in_order(make_bench: Any, make_engine: Any, plan_of: Any) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 40)
    plans = [plan_of(step, rows[step::3]) for step in range(3)]
    bench.planner.plans[1] = {plan.step: plan for plan in plans}
    found = bench.read(materialize_ticket(*plans))
    assert found.schema.equals(PIECES)
    assert found.combine_chunks().to_batches()[0].equals(make_engine().materialize(plans))


def test_materialize_when_ranks_and_partitions_are_named_sends_their_part_alone(make_bench: Any, plan_of: Any) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 40)
    plan = plan_of(7, rows, dp=2)
    bench.planner.plans[1] = {7: plan}
    parts = [
        bench.read(materialize_ticket(plan, dp_ranks=[rank], partitions=partitions))
        for rank in (0, 1)
        for partitions in ([[0, 0, 3], [0, 2, 3]], [[0, 1, 3]])
    ]
    whole = bench.read(materialize_ticket(plan, dp_ranks=[0, 1]))
    assert all(part.num_rows for part in parts)
    assert set(parts[0]["bin"].to_pylist()) == {0, 1}
    ids = [(row["shard"], row["block"], row["row"]) for part in parts for row in part.to_pylist()]
    assert sorted(ids) == sorted((row["shard"], row["block"], row["row"]) for row in whole.to_pylist())


def test_materialize_when_step_is_asked_again_uses_the_kept_slice(make_bench: Any, plan_of: Any) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 40)
    plans = [plan_of(step, rows[step::3]) for step in range(3)]
    bench.planner.plans[1] = {plan.step: plan for plan in plans}
    for plan in (plans[0], plans[1], plans[0], plans[2]):
        bench.read(materialize_ticket(plan))
    assert len([path for path in bench.planner.requests if "/plans?" in path]) == 1


def test_materialize_when_plan_was_superseded_fetches_the_new_one(make_bench: Any, plan_of: Any) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 40)
    old, new = plan_of(0, rows[:10]), plan_of(0, rows[10:30])
    bench.planner.plans[1] = {0: old}
    assert bench.read(materialize_ticket(old)).num_rows == 10
    bench.planner.plans[1] = {0: new}
    assert bench.read(materialize_ticket(new)).num_rows == 20


def test_materialize_when_digest_differs_conflicts_and_names_the_step(make_bench: Any, plan_of: Any) -> None:
    bench = make_bench()
    plan = plan_of(4, bench.measure(0, 3, 5))
    bench.planner.plans[1] = {4: plan}
    with pytest.raises(ConflictError, match=r"stream 'train' generation 1: the plan of step 4 must have digest ffff"):
        bench.read(materialize_ticket(plan, digests=["f" * 64]))


def test_materialize_when_step_is_not_planned_says_not_ready(make_bench: Any, plan_of: Any) -> None:
    with pytest.raises(NotReadyError, match="step 4 is not planned"):
        make_bench().read(materialize_ticket(plan_of(4, [])))


def test_materialize_when_step_is_large_sends_several_messages(
    make_bench: Any, plan_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "MESSAGE_BYTES", 4096)
    bench = make_bench()
    rows = bench.measure(0, 3, 100)
    plan = plan_of(0, rows)
    bench.planner.plans[1] = {0: plan}
    reader = bench.peer.open(sign(materialize_ticket(plan), bench.planner.key), timeout_s=60)
    batches = [chunk.data for chunk in reader]
    assert len(batches) > 3
    assert all(batch.num_rows for batch in batches)
    assert sum(batch.num_rows for batch in batches) == len(rows)


def test_messages_when_cut_keep_every_piece_and_stay_near_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MESSAGE_BYTES", 400)
    lengths = [10, 20, 500, 30, 40, 50, 60]
    blank = {field.name: None if field.nullable else 0 for field in PIECES} | {"is_masked": False}
    rows = [blank | {"tokens": [0] * n} for n in lengths]
    batch = pa.RecordBatch.from_pylist(rows, PIECES)
    found = [[len(tokens) for tokens in part.column("tokens").to_pylist()] for part in service_module.messages(batch)]
    assert [n for part in found for n in part] == lengths
    assert all(sum(part) <= 100 + max(part) for part in found)


def test_materialize_when_content_failed_reports_before_sending(
    make_bench: Any, plan_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 5)
    behind_end = [(0, row["num_tokens"] + 1) for row in rows]
    plan = plan_of(2, rows, behind_end)
    bench.planner.plans[1] = {2: plan}
    found = bench.read(materialize_ticket(plan))
    assert found["is_masked"].to_pylist() == [True] * len(rows)
    assert [(v["step"], v["stream"], v["row"]) for v in bench.planner.verdicts] == [
        (2, "train", row) for row in found["row"].to_pylist()
    ]


def test_materialize_when_the_journal_has_a_sample_masks_it_again_and_reports_nothing(
    make_bench: Any, plan_of: Any
) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 5)
    failed = tuple(rows[2][name] for name in ("source", "epoch", "shard", "block", "row"))
    plan = plan_of(2, rows)
    bench.planner.plans[1] = {2: replace(plan, masked=(failed,))}
    found = bench.read(materialize_ticket(plan)).to_pylist()
    assert [(row["shard"], row["block"], row["row"]) for row in found if row["is_masked"]] == [failed[2:]]
    assert bench.planner.verdicts == []


def test_materialize_when_a_failed_step_is_asked_again_is_masked_and_reported_once(
    make_bench: Any, plan_of: Any
) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 5)
    plan = plan_of(2, rows, [(0, row["num_tokens"] + 1) for row in rows])
    bench.planner.plans[1] = {2: plan}
    first, again = (bench.read(materialize_ticket(plan)) for _ in range(2))
    assert first.drop_columns("reason").equals(again.drop_columns("reason"))
    assert set(first["reason"].to_pylist()) == {report["reason"] for report in bench.planner.verdicts}
    assert set(again["reason"].to_pylist()) == {"masked when it was made before"}
    assert len(bench.planner.verdicts) == len(rows)


def test_stream_when_ticket_is_forged_or_of_another_kind_is_refused(make_bench: Any) -> None:
    bench = make_bench()
    good = measure_ticket(source=0, cursors=[[0, 0, 0, 0]], rows=5)
    with pytest.raises(UnauthenticatedError, match="signature"):
        bench.read(good, key=b"x" * 32)
    with pytest.raises(UnauthenticatedError, match="expired"):
        bench.read(replace(good, expires_at=time.time() - 1))
    rank = RankTicket(
        run=RUN, stream="train", generation=1, rank=0, first_step=0, last_step=1, expires_at=time.time() + 60
    )
    with pytest.raises(ForbiddenError, match="got a RankTicket"):
        bench.read(rank)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digests": []}, "digests must hold one for each of 1 steps"),
        ({"partitions": [[0, 3, 3]]}, r"partitions must be \[source, k, P\] with 0 <= k < P"),
    ],
)
def test_materialize_when_ticket_contradicts_itself_is_refused(
    make_bench: Any, plan_of: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequestError, match=message):
        make_bench().read(materialize_ticket(plan_of(0, []), **changes))


def test_measure_when_too_many_rows_are_asked_for_answers_fewer(
    make_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "MAX_ROWS", 10)
    cursors = [[lane, 0, 0, 0] for lane in range(3)]
    found = make_bench().read(measure_ticket(source=0, cursors=cursors, rows=1 << 20))
    assert found["lane"].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_measure_when_no_rows_are_asked_for_is_refused(make_bench: Any) -> None:
    with pytest.raises(BadRequestError, match="must be at least 1, got 0 and 1"):
        make_bench().read(measure_ticket(source=0, cursors=[[0, 0, 0, 0]], rows=0))


def test_measure_when_run_is_unknown_passes_on_what_the_planner_says(make_bench: Any) -> None:
    with pytest.raises(NotFoundError):
        make_bench().read(measure_ticket(source=0, cursors=[[0, 0, 0, 0]], rows=5, run="other"))


def test_measure_when_shard_has_changed_names_it(make_bench: Any, own_corpus: Path) -> None:
    bench = make_bench(folder=own_corpus)
    (own_corpus / "prose-2.parquet").unlink()
    with pytest.raises(SourceError, match=r"prose-2\.parquet"):
        bench.measure(0, 3, 5)


def test_stream_when_all_places_are_taken_is_busy(make_bench: Any) -> None:
    bench = make_bench()
    measures = bench.loader.service._measures
    measures._wait_s = 0.01
    for _ in range(service_module.MEASURES_AT_ONCE):
        measures._places.acquire()
    with pytest.raises(BusyError, match="16 measure calls run already"):
        bench.measure(0, 3, 5)
    for _ in range(service_module.MEASURES_AT_ONCE):
        measures._places.release()
    assert bench.measure(0, 3, 5)


def test_actions_when_draining_say_so_and_refuse_new_streams(make_bench: Any) -> None:
    bench = make_bench()
    assert bench.peer.action(Action.HEALTH) == {"status": "ok"}
    bench.measure(0, 3, 5)
    assert bench.loader.service.stats()["measures"] == 1
    bench.loader.service.draining.set()
    assert bench.peer.action(Action.HEALTH) == {"status": "draining"}
    with pytest.raises(MovedError, match="stopping"):
        bench.measure(0, 3, 5)
    with pytest.raises(BadRequestError, match="'ack'"):
        bench.peer.action(Action.ACK)


def test_follow_when_steps_are_released_frees_their_chunks(make_bench: Any, plan_of: Any, wait_until: Any) -> None:
    bench = make_bench(window_bytes=1 << 16)
    rows = bench.measure(0, 3, 100)
    plans = [plan_of(step, rows[step::2]) for step in range(2)]
    bench.planner.plans[1] = {plan.step: plan for plan in plans}
    bench.read(materialize_ticket(*plans))
    assert bench.loader.service.stats()["window_bytes"] > 0
    bench.planner.released = [{"run": RUN, "stream": "train", "generation": 1, "step": 2}]
    wait_until(lambda: bench.loader.service.stats()["window_bytes"] == 0, "the window to be freed")


def test_take_released_when_generation_is_fenced_hands_over_what_was_delivered_alone(
    make_bench: Any, plan_of: Any
) -> None:
    bench = make_bench()
    rows = bench.measure(0, 3, 40)
    plans = [plan_of(step, rows[step::3]) for step in range(3)]
    bench.planner.plans[1] = {plan.step: plan for plan in plans}
    bench.read(materialize_ticket(*plans))
    slices = bench.loader.service._slices
    assert slices.take_released(StreamProgress(run=RUN, stream="other", generation=9, step=9)) == []
    fenced = StreamProgress(run=RUN, stream="train", generation=2, step=1)
    assert [plan.step for plan in slices.take_released(fenced)] == [0]
    assert slices.take_released(fenced) == []


def test_follow_when_heartbeat_reports_carries_stats(make_bench: Any, wait_until: Any) -> None:
    bench = make_bench()
    bench.measure(0, 3, 5)
    wait_until(lambda: bench.planner.heartbeats[-1]["stats"].get("measures") == 1, "stats in a heartbeat")
    assert bench.planner.heartbeats[-1]["stats"]["runs_open"] == 1


def test_keep_when_no_lease_names_a_run_closes_it_and_opens_it_again(make_bench: Any) -> None:
    bench = make_bench()
    first = bench.measure(0, 3, 5)
    bench.loader.runs.keep({RUN}, idle_s=0)
    assert bench.loader.runs.stats()["runs_open"] == 1
    bench.loader.runs.keep(set(), idle_s=0)
    assert bench.loader.runs.stats()["runs_open"] == 0
    assert bench.measure(0, 3, 5) == first


def test_keep_when_a_call_uses_the_run_leaves_it_open(make_bench: Any) -> None:
    bench = make_bench()
    with bench.loader.runs.using(RUN):
        bench.loader.runs.keep(set(), idle_s=0)
        assert bench.loader.runs.engine_if_open(RUN) is not None
