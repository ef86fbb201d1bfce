"""The ledger proves a plan log, and names what was tampered with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import create_engine, update
from sqlalchemy.orm import Session

from loadmaster_flight.wire.control import CreateRunRequest, RunView, from_json
from loadmaster_flight.wire.errors import GoneError, NotFoundError
from loadmaster_flight.wire.ledger import Fault, StepView, VerifyReport
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.step_plan import StepPlan, encode_plans, plans_to_bytes
from loadmaster_server.store import GenerationKey
from loadmaster_server.store.intervals import intervals_of
from loadmaster_server.store.models import PlanRow
from support.synthetic import LANES, ROWS, UNITS, Cluster, synthetic_row_number, wait_for

MakeRun = Callable[..., CreateRunRequest]
STEPS = 24


@pytest.fixture
def start(cluster: Cluster, make_run: MakeRun) -> Callable[..., Cluster]:
    """A cluster with a run, planned to its end or for STEPS steps; all of that is acknowledged."""

    def begin(world_size: int = 1, *, alter: Callable[..., Any] | None = None, **spec: Any) -> Cluster:
        given = {"until": {"steps": STEPS}, "budgets": {"plan_ahead": 1000, "bind_ahead": 1000}} | spec
        cluster.client.post("/runs", make_run(**given), RunView)
        cluster.loader(**({"alter": alter} if alter else {}))
        cluster.open(world_size)
        _acknowledge_all(cluster)
        return cluster

    return begin


def _acknowledge_all(cluster: Cluster) -> None:
    store = cluster.server.planner.store
    newest = wait_for(lambda: (g := store.generations.current()[0]).end_step and g, what="the end to be planned")
    store.generations.bind(newest.key, newest.planned)
    store.generations.acknowledge(newest.key, newest.planned)


def _verify(cluster: Cluster, **query: Any) -> VerifyReport:
    lines = list(cluster.client.lines("/runs/run/verify", query=query))
    report = from_json(VerifyReport, json.loads(lines[-1]))
    assert report.is_done
    return report


def _plan(cluster: Cluster, step: int) -> StepPlan:
    return cluster.plans(step, step + 1)[0]


def _write(cluster: Cluster, plan: StepPlan, *, step: int | None = None, has_new_digest: bool = True) -> None:
    """Put another body into the log, and unless told otherwise a digest that fits it."""
    changed = plan.with_digest() if has_new_digest else plan
    columns = {"body": plans_to_bytes([changed]), "digest": changed.digest}
    engine = create_engine(cluster.server.planner.settings.store_url)
    with Session(engine) as session, session.begin():
        at = plan.step if step is None else step
        session.execute(update(PlanRow).where(PlanRow.step == at).values(**columns))
    engine.dispose()


def _with_piece(plan: StepPlan, i: int, other: StepPlan, j: int) -> StepPlan:
    """`plan` with the place of piece `i` taken by piece `j` of `other`."""
    columns = {}
    for name in ("source", "epoch", "lane", "shard", "block", "pos", "first_token", "num_tokens"):
        column = getattr(plan.pieces, name).copy()
        column[i] = getattr(other.pieces, name)[j]
        columns[name] = column
    return replace(plan, pieces=replace(plan.pieces, **columns))


def _sample(plan: StepPlan, i: int) -> str:
    p = plan.pieces
    name = ("web", "code")[int(p.source[i])]
    first = f":{p.first_token[i]}" if p.first_token[i] else ""
    return f"{name}/{p.shard[i]}/{p.block[i]}/{synthetic_row_number(int(p.pos[i]))}@{p.epoch[i]}{first}"


def _of(report: VerifyReport, kind: str) -> list[Fault]:
    return [fault for fault in report.faults if fault.kind == kind]


def test_verify_when_nothing_was_touched_then_whole_and_counted(start: Callable[..., Cluster]) -> None:
    cluster = start()
    report = _verify(cluster)
    plans = cluster.plans(0, STEPS)
    assert (report.num_faults, report.acknowledged, report.closed_at) == (0, STEPS, STEPS)
    assert report.pieces == sum(len(plan.pieces) for plan in plans)
    assert 0 < report.samples <= report.pieces
    assert report.planned_pieces == 0


def test_verify_when_only_part_is_acknowledged_then_that_is_the_bound(start: Callable[..., Cluster]) -> None:
    cluster = start(until={"steps": 200}, budgets={"plan_ahead": 1000, "bind_ahead": 1000})
    store, delivered = cluster.server.planner.store, cluster.plans(0, 8)
    generation = cluster.open(word="b", step=8, parent=0)
    wait_for(lambda: store.generations.current()[0].end_step, what="the end")
    report = _verify(cluster)
    assert (report.generation, report.num_faults, report.acknowledged) == (generation, 0, 8)
    assert report.pieces == sum(len(plan.pieces) for plan in delivered)
    assert report.planned_pieces > 0


@pytest.mark.parametrize("epochs", [1, 3])
def test_verify_when_epochs_end_and_rows_are_left_out_then_whole(start: Callable[..., Cluster], epochs: int) -> None:
    def skip(row: dict[str, Any]) -> dict[str, Any]:
        is_skipped = row["row"] % 11 == 3
        return row | ({"verdict": Verdict.SKIPPED, "reason": "empty", "num_tokens": 0} if is_skipped else {})

    cluster = start(alter=skip, until={"epochs": epochs})
    report = _verify(cluster)
    assert report.faults == []
    left_out = sum(row % 11 == 3 for row in range(ROWS)) * LANES * UNITS * 2
    assert report.skipped == left_out
    num_web = (ROWS * LANES * UNITS - left_out // 2) * epochs
    assert report.samples >= num_web


@pytest.mark.parametrize(
    "batch",
    [
        {"seq_len": 48, "microbatches": 4, "layout": "concat"},
        {"seq_len": 32, "microbatches": 6, "layout": "pack"},
        {"seq_len": 32, "microbatches": 4, "layout": "pad", "rows": 1},
    ],
)
def test_verify_when_samples_are_cut_then_their_pieces_make_the_whole(
    start: Callable[..., Cluster], batch: dict[str, Any]
) -> None:
    report = _verify(start(batch=batch, until={"epochs": 1}))
    assert report.faults == []
    assert report.cut_samples > 0


def _tampered(cluster: Cluster) -> Iterator[tuple[StepPlan, int]]:
    """Whole pieces of steps in the middle of a run."""
    for step in (5, 9, 14):
        plan = _plan(cluster, step)
        yield plan, int(np.flatnonzero(plan.pieces.num_tokens < 0)[len(plan.pieces) // 2 - 1])


def test_verify_when_a_piece_is_lost_then_it_is_named(start: Callable[..., Cluster]) -> None:
    cluster = start()
    for plan, i in _tampered(cluster):
        keep_N = np.arange(len(plan.pieces)) != i
        _write(cluster, replace(plan, pieces=plan.pieces.take(keep_N)))
        lost = _of(_verify(cluster), "lost")
        assert _sample(plan, i) in {fault.sample for fault in lost}
        _write(cluster, plan)
    assert _verify(cluster).num_faults == 0


def test_verify_when_a_piece_comes_twice_then_it_is_named_and_so_is_the_one_it_displaced(
    start: Callable[..., Cluster],
) -> None:
    cluster = start()
    earlier, later = _plan(cluster, 4), _plan(cluster, 15)
    whole = int(np.flatnonzero(earlier.pieces.num_tokens < 0)[0])
    displaced = int(np.flatnonzero(later.pieces.num_tokens < 0)[-1])
    _write(cluster, _with_piece(later, displaced, earlier, whole))
    report = _verify(cluster)
    repeated = _of(report, "repeated")
    assert [(fault.step, fault.sample) for fault in repeated] == [(15, _sample(earlier, whole))]
    assert _sample(later, displaced) in {fault.sample for fault in _of(report, "lost")}


def test_verify_when_two_pieces_change_steps_then_the_order_is_named(start: Callable[..., Cluster]) -> None:
    cluster = start()
    a, b = _plan(cluster, 4), _plan(cluster, 6)
    i = int(np.flatnonzero((a.pieces.num_tokens < 0) & (a.pieces.source == 0))[0])
    j = int(np.flatnonzero((b.pieces.num_tokens < 0) & (b.pieces.source == 0))[-1])
    _write(cluster, _with_piece(a, i, b, j))
    _write(cluster, _with_piece(b, j, a, i))
    disorder = _of(_verify(cluster), "disorder")
    assert {a.pieces.lane[i], b.pieces.lane[j]} == {int(fault.sample.split("/")[1]) % LANES for fault in disorder}
    assert {fault.step for fault in disorder} <= {4, 5, 6}


def test_verify_when_part_of_a_cut_sample_is_lost_then_its_tokens_are_named(start: Callable[..., Cluster]) -> None:
    cluster = start(batch={"seq_len": 48, "microbatches": 4, "layout": "concat"})
    plan = _plan(cluster, 7)
    i = int(np.flatnonzero(plan.pieces.num_tokens >= 0)[0])
    keep_N = np.arange(len(plan.pieces)) != i
    _write(cluster, replace(plan, pieces=plan.pieces.take(keep_N)))
    (lost,) = _of(_verify(cluster), "lost")
    first, tokens = int(plan.pieces.first_token[i]), int(plan.pieces.num_tokens[i])
    assert lost.sample == _sample(plan, i)
    assert lost.message.startswith(f"its tokens {first} to {first + tokens} are in no step")


def test_verify_when_a_body_does_not_fit_its_digest_then_the_step_is_named(start: Callable[..., Cluster]) -> None:
    cluster = start()
    plan = _plan(cluster, 3)
    bins = plan.pieces.bin.copy()
    bins[0] = (bins[0] + 1) % plan.num_bins
    _write(cluster, replace(plan, pieces=replace(plan.pieces, bin=bins)), has_new_digest=False)
    report = _verify(cluster)
    assert [(fault.kind, fault.step) for fault in report.faults] == [("log", 3)]
    assert "digest" in report.faults[0].message


def test_verify_when_two_steps_are_exchanged_then_both_are_named(start: Callable[..., Cluster]) -> None:
    cluster = start()
    a, b = _plan(cluster, 3), _plan(cluster, 10)
    _write(cluster, a, step=10)
    _write(cluster, b, step=3)
    assert {3, 10} <= {fault.step for fault in _of(_verify(cluster), "log")}


def test_verify_when_a_stream_went_on_in_another_generation_then_its_lineage_counts(
    start: Callable[..., Cluster],
) -> None:
    cluster = start(2)
    cluster.open(4, word="b", step=10, parent=0)
    _acknowledge_all(cluster)
    report = _verify(cluster)
    assert (report.generation, report.num_faults, report.acknowledged) == (1, 0, STEPS)
    assert report.lineage == ["generation 1 from step 10 of generation 0", "generation 0 from step 0"]


def test_verify_when_a_resume_leaves_steps_out_then_they_are_counted_apart(start: Callable[..., Cluster]) -> None:
    cluster = start()
    left_out = [len(plan.pieces) for plan in cluster.plans(12, 14)]
    cluster.open(word="b", step=10, parent=0, skip=[12, 14])
    _acknowledge_all(cluster)
    report = _verify(cluster)
    total = sum(len(plan.pieces) for plan in cluster.plans(10, STEPS, generation=1))
    assert (report.num_faults, report.left_out_steps, report.lineage[0]) == (
        0,
        2,
        "generation 1 from step 10 of generation 0",
    )
    view = cluster.client.get("/runs/run/steps/12", StepView)
    assert (view.state, view.num_pieces) == ("left out", left_out[0])
    assert report.pieces > total - sum(left_out)


def test_verify_when_old_bodies_are_gone_then_their_pieces_still_count(start: Callable[..., Cluster]) -> None:
    cluster = start()
    before, key = _verify(cluster), GenerationKey(run="run", stream="train", generation=0)
    engine = create_engine(cluster.server.planner.settings.store_url)
    with Session(engine) as session, session.begin():
        for plan in cluster.plans(0, 10):
            gone = {"body": None, "intervals": intervals_of(encode_plans([plan]))}
            session.execute(update(PlanRow).where(PlanRow.step == plan.step).values(**gone))
    engine.dispose()
    with pytest.raises(GoneError):
        cluster.server.planner.store.plans.read(key, 0, 10)
    report = _verify(cluster)
    assert (report.num_faults, report.pieces, report.samples) == (0, before.pieces, before.samples)
    assert report.bodies_gone >= 10


def test_verify_when_nobody_joined_or_no_such_run_then_refused(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    with pytest.raises(NotFoundError, match="nobody has joined run/train"):
        _verify(cluster)
    with pytest.raises(NotFoundError):
        _verify(cluster, stream="other")
