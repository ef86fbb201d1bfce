"""Revisions in the store: what serialises with what, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.spec import RunSpec, ScheduleSpec, SourceManifest, schedule_of
from loadmaster_flight.wire.control import CreateRunRequest
from loadmaster_flight.wire.errors import ConflictError, SpecError, StaleError
from loadmaster_server.store import (
    Change,
    Definition,
    GenerationKey,
    NewGeneration,
    PlannedStep,
    PlanRecord,
    Published,
    RevisionRecord,
    ScheduledState,
    Store,
    StreamKey,
    SupersededError,
    Timeline,
)

RUN, TRAIN = "run", StreamKey(run="run", stream="train")


@pytest.fixture
def store(database_url: str, make_run: Callable[..., CreateRunRequest]) -> Iterator[Store]:
    """A store with one run."""
    request = make_run()
    manifests = tuple(SourceManifest.model_validate(tree) for tree in request.manifests)
    with Store(database_url) as opened:
        opened.runs.create(Definition(spec=RunSpec.model_validate(request.spec), manifests=manifests))
        yield opened


@pytest.fixture
def key(store: Store) -> GenerationKey:
    """A generation of which steps [0, 8) are planned, with a checkpoint after each, and [0, 3) bound."""
    mesh = {"pp": 1, "dp": 1, "cp": 1, "tp": 1}
    key = store.generations.open(TRAIN, NewGeneration(parent=-1, first_step=0, mesh=mesh, nonces=["a"])).key
    for step in range(8):
        store.plans.commit(key, _plan(step), checkpoint=b"%d" % (step + 1))
    store.generations.bind(key, 3)
    return key


def _plan(step: int, revision: int = 0, *, is_final: bool = False) -> PlanRecord:
    digest = f"{step:032}{revision:032}"
    return PlanRecord(step=step, digest=digest, revision=revision, is_final=is_final, body=b"", summary={})


def _publish(store: Store, weight: float = 9, **change: Any) -> Published:
    def decide(timeline: Timeline, step: int, room: object) -> ScheduleSpec:
        tree = timeline.newest.schedule.model_dump()
        return ScheduleSpec.model_validate(tree | {"weights": {"web": weight, "code": 1}})

    return store.schedules.publish(RUN, Change(author="ada", message="m", **change), decide)


def test_publish_when_steps_are_planned_then_taken_back_with_their_checkpoints(
    store: Store, key: GenerationKey
) -> None:
    assert _publish(store, at_step=5).revision is not None
    generation = store.generations.get(key)
    assert (generation.planned, generation.bound) == (5, 3)
    assert list(store.plans.digests(key, 0, 99)) == [0, 1, 2, 3, 4]
    assert store.plans.checkpoint(key, 99) == (5, b"5")


def test_commit_when_a_revision_came_between_then_refused_and_nothing_written(store: Store, key: GenerationKey) -> None:
    """The planner was making step 8 when a revision took over from there, and then from step 5."""
    _publish(store, at_step=8)
    with pytest.raises(SupersededError):
        store.plans.commit(key, _plan(8), checkpoint=b"9")
    _publish(store, at_step=5)
    with pytest.raises(SupersededError):
        store.plans.commit(key, _plan(8, 1), checkpoint=b"9")
    assert list(store.plans.digests(key, 0, 99)) == [0, 1, 2, 3, 4]
    store.plans.commit(key, _plan(5, 2), checkpoint=None)
    assert store.generations.get(key).planned == 6


def test_commit_all_when_a_revision_or_a_publish_comes_between_then_refused(store: Store, key: GenerationKey) -> None:
    """Steps [8, 12) were being planned together: neither a revision at 8 nor one that waits for 10 is passed over."""
    steps = [PlannedStep(plan=_plan(step)) for step in range(8, 12)]
    assert _publish(store, at_step=10).scheduled is not None
    with pytest.raises(SupersededError, match="step 10 was planned without the publish"):
        store.plans.commit_all(key, steps)
    store.plans.commit_all(key, steps[:2])
    assert store.schedules.next_due(RUN) == 10
    _publish(store, at_step=9)
    with pytest.raises(SupersededError, match="step 9 was planned under revision 0"):
        store.plans.commit_all(key, [PlannedStep(plan=_plan(step)) for step in (9, 10)])
    assert store.generations.get(key).planned == 9


def test_publish_when_the_final_step_is_taken_back_then_there_is_no_end(store: Store, key: GenerationKey) -> None:
    store.plans.commit(key, _plan(8, is_final=True), checkpoint=None)
    with pytest.raises(ConflictError, match="the stream ends before step 9"):
        _publish(store, at_step=9)
    assert store.generations.get(key).end_step == 9
    _publish(store, at_step=8)
    assert store.generations.get(key).end_step is None


def test_publish_when_steps_are_to_be_replayed_then_not_among_them(store: Store, key: GenerationKey) -> None:
    mesh = {"pp": 1, "dp": 2, "cp": 1, "tp": 1}
    new = NewGeneration(parent=0, first_step=1, mesh=mesh, nonces=["a", "b"], replay_until=3)
    store.generations.open(TRAIN, new)
    with pytest.raises(ConflictError, match="from 3 on, got 2"):
        _publish(store, at_step=2)
    assert _publish(store).revision.from_step == 3  # type: ignore[union-attr]


def test_publish_when_decide_raises_then_nothing_happens(store: Store, key: GenerationKey) -> None:
    def decide(*_: object) -> ScheduleSpec:
        raise SpecError("no")

    with pytest.raises(SpecError):
        store.schedules.publish(RUN, Change(author="ada", message="m"), decide)
    assert store.schedules.timeline(RUN).newest.number == 0
    assert store.generations.get(key).planned == 8
    assert store.audit.read(run=RUN) == []


def test_publish_when_the_base_is_old_then_stale_with_the_newest(store: Store) -> None:
    _publish(store, base=0)
    with pytest.raises(StaleError) as caught:
        _publish(store, base=0)
    assert caught.value.details == {"current": 1}


def test_activate_when_due_and_fit_then_a_revision_at_its_step(store: Store, key: GenerationKey) -> None:
    number = _publish(store, at_step=9).scheduled.number  # type: ignore[union-attr]
    assert not store.schedules.activate_due(RUN, 8, lambda schedule, step: None)
    assert store.schedules.activate_due(RUN, 9, lambda schedule, step: None)
    assert [revision.from_step for revision in store.schedules.timeline(RUN).revisions] == [0, 9]
    (record,) = store.schedules.scheduled(RUN)
    assert (record.number, record.state, record.revision) == (number, ScheduledState.ACTIVATED, 1)
    assert not store.schedules.activate_due(RUN, 10, lambda schedule, step: None)


def test_activate_when_it_does_not_fit_any_more_then_suspended(store: Store, key: GenerationKey) -> None:
    def check(schedule: ScheduleSpec, step: int) -> None:
        raise SpecError("dp must divide G")

    _publish(store, at_step=9)
    store.schedules.activate_due(RUN, 9, check)
    (record,) = store.schedules.scheduled(RUN)
    assert (record.state, record.reason) == (ScheduledState.SUSPENDED, "dp must divide G")
    assert store.schedules.timeline(RUN).newest.number == 0


def test_activate_when_two_wait_for_one_step_then_the_first_is_made_and_the_other_suspended(
    store: Store, key: GenerationKey
) -> None:
    _publish(store, 5, at_step=9)
    _publish(store, 6, at_step=9)
    store.schedules.activate_due(RUN, 9, lambda schedule, step: None)
    states = [record.state for record in reversed(store.schedules.scheduled(RUN))]
    assert states == [ScheduledState.ACTIVATED, ScheduledState.SUSPENDED]
    assert store.schedules.timeline(RUN).newest.schedule.weights["web"].at(9) == 5


def test_timeline_when_another_store_publishes_then_seen(store: Store, database_url: str) -> None:
    """A planner that stood by has read the revisions before."""
    assert store.schedules.timeline(RUN).newest.number == 0
    with Store(database_url) as other:
        _publish(other)
    assert store.schedules.timeline(RUN).newest.number == 1


@given(steps=st.lists(st.integers(0, 20), max_size=8))
def test_timeline_at_any_step_then_the_newest_that_has_begun(steps: list[int]) -> None:
    tree = {"run": "r", "sources": {"a": {"uri": "a.jsonl", "transform": {"text": "t"}}}}
    spec = RunSpec.model_validate(tree | {"batch": {"seq_len": 64, "microbatches": 1}})
    revisions = [
        RevisionRecord(
            number=i, base=i - 1, from_step=step, author="", message="", schedule=schedule_of(spec), created_at=0.0
        )
        for i, step in enumerate([0, *steps])
    ]
    timeline = Timeline(revisions=tuple(revisions))
    rules = {first: revision.number for first, revision in timeline.stretches()}
    for step in range(25):
        number = max(r.number for r in revisions if r.from_step <= step)
        assert timeline.at(step).number == number
        assert rules[max(first for first in rules if first <= step)] == number
