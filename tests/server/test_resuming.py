"""Going on from a step of an earlier generation: replay, skip, forks, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.control import CreateRunRequest, GenerationView, RunView, StreamView, from_json
from loadmaster_flight.wire.errors import BadRequestError, ConflictError, LoadmasterError, MeshError
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, StepPlan
from support.synthetic import Cluster, FakeLoader, wait_for

BATCH = {"seq_len": 64, "microbatches": 4, "align": 8}
MEMBERSHIP = [name for name in PIECE_COLUMNS if name != "bin"]
Start = Callable[..., tuple[Cluster, FakeLoader]]


@pytest.fixture
def start(make_cluster: Callable[..., Cluster], make_run: Callable[..., CreateRunRequest], database_url: str) -> Start:
    """A planner with one run and a loader, on either database; generation 0 has one rank and binds 12 steps."""

    def started(*, binds: int = 12, **spec: Any) -> tuple[Cluster, FakeLoader]:
        cluster = make_cluster(database_url=database_url)
        budgets = {"plan_ahead": 12, "bind_ahead": 12, "build_ahead": 2}
        cluster.client.post("/runs", make_run(batch=BATCH, budgets=budgets, **spec), RunView)
        cluster.open()
        loader = cluster.loader()
        cluster.planned(binds)
        cluster.plans(0, binds, bind=1)
        return cluster, loader

    return started


def _generations(cluster: Cluster) -> list[GenerationView]:
    return [
        from_json(GenerationView, view) for view in json.loads(cluster.client.request("GET", "/runs/run/generations"))
    ]


def _view(cluster: Cluster) -> StreamView:
    return cluster.client.get("/runs/run/streams/train", StreamView)


def _membership(plan: StepPlan) -> list[list[int]]:
    return np.stack([getattr(plan.pieces, name) for name in MEMBERSHIP]).tolist()


def test_replay_when_the_mesh_is_the_same_then_bound_steps_are_there_without_any_loader(start: Start) -> None:
    cluster, loader = start()
    before = cluster.plans(5, 12)
    loader.close()
    reply = cluster.join(nonce="again", step=5, parent=0)
    assert [plan.digest for plan in cluster.plans(5, 12, generation=reply.generation)] == [p.digest for p in before]
    assert (_view(cluster).planned, _view(cluster).bound, _view(cluster).acknowledged) == (12, 12, 5)


def test_replay_when_it_is_over_then_planning_goes_on_as_if_nothing_had_been(start: Start) -> None:
    cluster, _ = start()
    constructor = cluster.constructor()
    constructor.acknowledge(10)
    before = wait_for(lambda: found if len(found := cluster.plans(12, 20)) == 8 else None, what="plans")
    cluster.join(nonce="again", step=5, parent=0)
    after = wait_for(lambda: found if len(found := cluster.plans(12, 20, generation=1)) == 8 else None, what="plans")
    assert [plan.digest for plan in after] == [plan.digest for plan in before]


def test_replay_when_the_mesh_is_another_then_the_same_membership_is_bound_again(start: Start) -> None:
    cluster, _ = start()
    before = cluster.plans(5, 12)
    assert cluster.open(4, word="b", step=5, parent=0) == 1
    wait_for(lambda: _view(cluster).bound >= 12, what="the bound steps to be bound again")
    after = cluster.plans(5, 12, generation=1)
    assert [_membership(plan) for plan in after] == [_membership(plan) for plan in before]
    assert {plan.dp for plan in after} == {4}


def test_replay_when_the_sources_have_changed_then_the_stream_fails_and_says_so(start: Start) -> None:
    cluster, loader = start()
    loader.alter = lambda row: row | {"num_tokens": row["num_tokens"] % 60 + 1 if row["num_tokens"] else 0}
    cluster.open(2, word="b", step=8, parent=0)
    wait_for(lambda: _view(cluster).state == "failed", what="the change to be noticed")
    assert "comes out otherwise than it was planned before" in _view(cluster).reason


def test_replay_when_it_is_not_wanted_then_nothing_is_bound(start: Start) -> None:
    cluster, _ = start()
    reply = cluster.join(nonce="again", step=5, parent=0, replay=False)
    wait_for(lambda: _view(cluster).planned >= 12, what="the steps to be planned anew")
    assert (reply.generation, _view(cluster).bound) == (1, 5)
    assert [view.replay_until for view in _generations(cluster)] == [None, None]


def test_replay_when_the_stream_was_planned_to_its_end_then_it_ends_there_again(start: Start) -> None:
    cluster, loader = start(until={"steps": 12})
    loader.close()
    cluster.join(nonce="again", step=12, parent=0)
    cluster.join(nonce="earlier", step=9, parent=0)
    assert (_view(cluster).is_planned_to_end, _view(cluster).planned) == (True, 12)
    assert [view.end_step for view in _generations(cluster)] == [12, 12, 12]


def test_generations_when_forked_then_each_names_its_parent_and_how_it_began(start: Start) -> None:
    cluster, _ = start()
    cluster.open(2, word="b", step=5, parent=0)
    wait_for(lambda: _view(cluster).bound >= 12, what="the replay")
    cluster.open(1, word="c", step=8, parent=1, replay=False, skip=[10, 12])
    first, second, third = _generations(cluster)
    assert (first.parent, first.first_step, first.world_size, first.state) == (-1, 0, 1, "fenced")
    assert (second.parent, second.first_step, second.mesh["dp"], second.replay_until) == (0, 5, 2, 12)
    assert (third.parent, third.first_step, third.replay_until, third.skip) == (1, 8, None, [10, 12])
    assert third.state == "open"
    assert third.opened_at > second.opened_at > first.opened_at


def test_resume_when_at_a_step_before_the_named_generation_then_replays_up_to_where_that_began(start: Start) -> None:
    cluster, _ = start()
    cluster.join(nonce="b", step=7, parent=0, replay=False)
    cluster.join(nonce="c", step=3, parent=1)
    view = _generations(cluster)[-1]
    assert (view.parent, view.first_step, view.replay_until, view.bound) == (0, 3, 7, 7)


def test_skip_when_longer_than_every_horizon_then_the_steps_behind_it_are_planned_and_bound(start: Start) -> None:
    cluster, _ = start()
    constructor = cluster.constructor()
    reply = cluster.join(nonce="again", step=5, parent=0, skip=[7, 47])
    assert reply.skip == [7, 47]
    wait_for(lambda: constructor.assignments and constructor.assignments[0].skip == [7, 47], what="the assignment")
    wait_for(lambda: _view(cluster).planned >= 57, what="steps behind the gap")
    assert [plan.step for plan in cluster.plans(47, 60, generation=1, bind=1)] == list(range(47, 57))
    constructor.acknowledge(47)
    wait_for(lambda: _view(cluster).acknowledged == 47, what="the acknowledgement to jump")


def test_skip_when_it_ends_with_the_stream_then_the_stream_is_over_after_the_step_before_it(start: Start) -> None:
    cluster, _ = start(until={"steps": 12})
    constructor = cluster.constructor()
    cluster.join(nonce="again", step=5, parent=0, skip=[8, 12])
    constructor.acknowledge(12)
    wait_for(lambda: _view(cluster).state == "ended", what="the end")


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        ({"step": 5, "skip": [4, 6]}, BadRequestError, r"skip must begin at step 5 or after it, got \[4, 6\]"),
        ({"step": 5, "skip": [6, 6]}, BadRequestError, r"skip must be two steps \(a, b\) with 0 <= a < b"),
        ({"step": 5, "skip": [6]}, BadRequestError, r"skip must be two steps"),
        ({"step": 5, "skip": [6, 13]}, ConflictError, r"skip must lie within the stream's 12 steps, got \[6, 13\]"),
        ({"step": 13}, ConflictError, r"step must be one that run/train generation 0 reached, at most 12, got 13"),
        ({"step": 5, "world_size": 3}, MeshError, r"dp must divide microbatches, got dp 3 and 4"),
        (
            {"step": 5, "world_size": 8, "mesh": {"cp": 8}},
            MeshError,
            r"2 \* cp must divide align, got cp 8 and align 8",
        ),
        (
            {"step": 5, "world_size": 12, "mesh": {"tp": 12}},
            MeshError,
            r"2 \* cp \* tp must divide seq_len, got cp 1, tp 12 and 64 tokens",
        ),
    ],
)
def test_resume_when_impossible_then_refused_by_name_and_nothing_is_fenced(
    make_cluster: Callable[..., Cluster],
    make_run: Callable[..., CreateRunRequest],
    request_: dict[str, Any],
    error: type[LoadmasterError],
    says: str,
) -> None:
    cluster = make_cluster()
    cluster.client.post("/runs", make_run(batch=BATCH, until={"steps": 12}), RunView)
    cluster.open()
    cluster.loader()
    store, key = cluster.server.planner.store, cluster.server.planner.store.generations.current()[0].key
    cluster.planned(12)
    store.generations.bind(key, 12)
    with pytest.raises(error, match=says):
        cluster.join(**({"nonce": "again", "parent": 0} | request_))
    assert [view.state for view in _generations(cluster)] == ["open"]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"skip": [6, 8]}, r"rank 1 skips the steps \[6, 8\] but rank 0 skips the steps \[\]"),
        ({"replay": False}, "rank 1 has replay=False but rank 0 has replay=True"),
    ],
)
def test_resume_when_ranks_want_different_things_then_conflict_names_both(
    start: Start, other: dict[str, Any], says: str
) -> None:
    cluster, _ = start()
    asks = [{"rank": rank, "world_size": 2, "nonce": f"b{rank}", "step": 5, "parent": 0} for rank in (0, 1)]
    cluster.join(**asks[0])
    assert cluster.join(**(asks[1] | other)).state == "waiting"
    cluster.join(**asks[0])
    with pytest.raises(ConflictError, match=says):
        cluster.join(**(asks[1] | other))


def test_restart_when_a_replay_is_under_way_then_it_is_finished(start: Start) -> None:
    cluster, loader = start()
    loader.close()
    cluster.open(2, word="b", step=5, parent=0)
    cluster.restart()
    assert _view(cluster).bound == 5
    cluster.loader()
    wait_for(lambda: _view(cluster).bound >= 12, what="the replay")
    assert (_view(cluster).state, _view(cluster).acknowledged) == ("open", 5)
