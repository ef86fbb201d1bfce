"""The plan log over a run's life: old bodies in segment files, and going on from every step that is still held."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView, StreamView
from loadmaster_flight.wire.errors import BadRequestError, GoneError
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_server.plans import Counters, Retention, RetentionRules
from loadmaster_server.settings import PlannerSettings
from support.synthetic import Cluster, wait_for

STEPS = 40
RULES = RetentionRules(keep_steps=6, segment_steps=8, thin_to=2)


@pytest.fixture
def start(
    make_cluster: Callable[..., Cluster], make_run: Callable[..., CreateRunRequest], database_url: str
) -> Callable[..., tuple[Cluster, list[StepPlan]]]:
    """A planner with a run of 40 steps that are planned and acknowledged, and these steps."""

    def started(**planner: RetentionRules) -> tuple[Cluster, list[StepPlan]]:
        cluster = make_cluster(database_url=database_url, **planner)
        budgets = {"plan_ahead": STEPS, "bind_ahead": STEPS, "build_ahead": 2}
        cluster.client.post("/runs", make_run(until={"steps": STEPS}, budgets=budgets), RunView)
        cluster.loader()
        constructor = cluster.constructor()
        cluster.open()
        cluster.planned(STEPS)
        plans = cluster.plans(0, STEPS, bind=1)
        constructor.acknowledge(STEPS)
        wait_for(lambda: _view(cluster).acknowledged == STEPS, what="the acknowledgement")
        return cluster, plans

    return started


def _view(cluster: Cluster) -> StreamView:
    return cluster.client.get("/runs/run/streams/train", StreamView)


def _stats(cluster: Cluster) -> dict[str, float]:
    found: dict[str, float] = json.loads(cluster.client.request("GET", "/stats"))
    return found


def _apply(cluster: Cluster, rules: RetentionRules) -> None:
    planner = cluster.server.planner
    Retention(planner.store, rules, checkpoint_steps=4, counters=planner.counters).apply()


def test_retention_when_applied_then_old_bodies_are_in_files_and_every_step_is_read_as_before(
    start: Callable[..., tuple[Cluster, list[StepPlan]]],
) -> None:
    cluster, plans = start()
    before = _stats(cluster)
    _apply(cluster, RULES)
    after = _stats(cluster)
    assert (before["plan_bodies"], after["plan_bodies"], after["segments"]) == (40, 8, 4)
    assert after["segment_bytes"] == after["segment_bytes_written"] < before["plan_body_bytes"]
    assert (after["plans_moved"], before["checkpoints"], after["checkpoints"]) == (32, 10, 6)
    assert after["plan_body_bytes"] < before["plan_body_bytes"] / 4
    assert [plan.digest for plan in cluster.plans(0, STEPS)] == [plan.digest for plan in plans]
    assert cluster.client.request("GET", "/runs/run/streams/train/steps/3/graph")


def test_resume_when_bodies_were_moved_then_goes_on_from_any_step(
    start: Callable[..., tuple[Cluster, list[StepPlan]]],
) -> None:
    cluster, plans = start()
    _apply(cluster, RULES)
    for i, step in enumerate([1, 8, 15, 23, 33, 39, 40]):
        same, other = 2 * i + 1, 2 * i + 2
        cluster.join(nonce=f"again{i}", step=step, parent=0)
        assert [plan.digest for plan in cluster.plans(step, STEPS, generation=same)] == [p.digest for p in plans[step:]]
        cluster.open(2, word=f"b{i}", step=step, parent=0)
        wait_for(lambda: _view(cluster).bound == STEPS, what="the replay on another mesh")
        replayed = cluster.plans(step, STEPS, generation=other)
        assert [plan.pieces.pos.tolist() for plan in replayed] == [plan.pieces.pos.tolist() for plan in plans[step:]]


def test_resume_when_steps_were_forgotten_then_refused_below_and_possible_from_there(
    start: Callable[..., tuple[Cluster, list[StepPlan]]],
) -> None:
    rules = RetentionRules(keep_steps=6, segment_steps=8, thin_to=2, forget_steps=15)
    cluster, plans = start()
    _apply(cluster, rules)
    assert _stats(cluster)["segments_dropped"] == 3
    with pytest.raises(GoneError, match="step 24 of run/train generation 0 is not held any more: go on from step 25"):
        cluster.join(nonce="again", step=24, parent=0)
    cluster.open(2, word="b", step=25, parent=0)
    wait_for(lambda: _view(cluster).bound == STEPS, what="the replay on another mesh")
    replayed = cluster.plans(25, STEPS, generation=1)
    assert [plan.pieces.pos.tolist() for plan in replayed] == [plan.pieces.pos.tolist() for plan in plans[25:]]


def test_stats_when_a_planner_restarts_then_tell_how_far_it_had_to_plan_again(
    start: Callable[..., tuple[Cluster, list[StepPlan]]],
) -> None:
    cluster, _ = start()
    _apply(cluster, RULES)
    cluster.open(2, word="b", step=23, parent=0)
    wait_for(lambda: _view(cluster).bound == STEPS, what="the replay on another mesh")
    stats = _stats(cluster)
    assert (stats["restores"], stats["restored_steps"]) == (2, 23 - 16)
    assert stats["last_restore_seconds"] > 0


def test_planner_when_it_runs_then_applies_its_rules_by_itself(
    start: Callable[..., tuple[Cluster, list[StepPlan]]],
) -> None:
    cluster, plans = start(retention=RULES)
    wait_for(lambda: _stats(cluster)["checkpoints"] == 6, what="the rules to be applied")
    assert _stats(cluster)["segments"] == 4
    assert [plan.digest for plan in cluster.plans(0, STEPS)] == [plan.digest for plan in plans]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"keep_steps": 0}, "keep_steps must be at least 1, got 0"),
        ({"segment_steps": 0}, "segment_steps must be at least 1, got 0"),
        ({"forget_steps": -1}, "forget_steps must be at least 0, got -1"),
        ({"keep_steps": 10, "segment_steps": 5, "forget_steps": 14}, r"at least keep_steps \+ segment_steps = 15"),
    ],
)
def test_rules_when_out_of_range_then_refused(rules: dict[str, int], says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        RetentionRules(**rules)


def test_settings_when_no_storage_is_named_then_below_the_state(tmp_path: Path) -> None:
    assert PlannerSettings(state_dir=tmp_path).storage_uri == str(tmp_path / "segments")
    assert PlannerSettings(state_dir=tmp_path, storage="s3://bucket/x").storage_uri == "s3://bucket/x"
    assert Counters().read() == {}
