from __future__ import annotations

from collections.abc import Callable

import pytest

from loadmaster_flight.wire.errors import GoneError, NotFoundError
from loadmaster_server.store import (
    Definition,
    GenerationKey,
    GenerationRecord,
    GenerationState,
    NewGeneration,
    PlanRecord,
    Store,
    StreamKey,
)

TRAIN = StreamKey(run="run", stream="train")
MakeNew = Callable[..., NewGeneration]


@pytest.fixture
def generation(
    store: Store, make_definition: Callable[..., Definition], make_new: MakeNew, make_plan: Callable[..., PlanRecord]
) -> GenerationRecord:
    """An open generation of run/train with five planned steps."""
    store.runs.create(make_definition())
    opened = store.generations.open(TRAIN, make_new())
    for step in range(5):
        store.plans.commit(opened.key, make_plan(step), checkpoint=None)
    return store.generations.get(opened.key)


def test_open_when_there_is_an_older_one_then_it_is_fenced(
    store: Store, generation: GenerationRecord, make_new: MakeNew
) -> None:
    newer = store.generations.open(TRAIN, make_new(parent=0, first_step=3))
    assert (newer.key.generation, newer.parent_step, newer.planned, newer.bound) == (1, 3, 3, 3)
    assert store.generations.newest(TRAIN) == newer
    assert store.generations.current() == [newer]
    with pytest.raises(GoneError, match="replaced by generation 1") as caught:
        store.generations.unfenced(generation.key)
    assert caught.value.details == {"generation": 1}


def test_bind_when_asked_for_more_than_planned_then_binds_what_is_planned(
    store: Store, generation: GenerationRecord
) -> None:
    assert store.generations.bind(generation.key, 3).bound == 3
    assert store.generations.bind(generation.key, 2).bound == 3
    assert store.generations.bind(generation.key, 99).bound == 5


def test_acknowledge_when_asked_for_more_than_bound_then_stays_within(
    store: Store, generation: GenerationRecord
) -> None:
    store.generations.bind(generation.key, 4)
    assert store.generations.acknowledge(generation.key, 9).acknowledged == 4
    assert store.generations.acknowledge(generation.key, 1).acknowledged == 4


def test_acknowledge_when_the_end_is_reached_then_ended(
    store: Store, generation: GenerationRecord, make_plan: Callable[..., PlanRecord]
) -> None:
    store.plans.commit(generation.key, make_plan(5, is_final=True), checkpoint=None)
    store.generations.bind(generation.key, 6)
    assert store.generations.acknowledge(generation.key, 5).state is GenerationState.OPEN
    assert store.generations.acknowledge(generation.key, 6).state is GenerationState.ENDED


def test_end_when_everything_is_acknowledged_then_ended(store: Store, generation: GenerationRecord) -> None:
    store.generations.end(generation.key, 0)
    assert store.generations.get(generation.key).state is GenerationState.ENDED


def test_resume_when_stopped_then_open_without_reason(store: Store, generation: GenerationRecord) -> None:
    store.generations.stop(generation.key, GenerationState.PAUSED, "RUN_PAUSED", "too bad")
    assert store.generations.get(generation.key).reason == "too bad"
    assert store.generations.resume("run", by="ada") == [generation.key]
    assert store.generations.get(generation.key) == generation
    assert store.generations.resume("run", by="ada") == []
    assert [(row.author, row.action) for row in store.audit.read(run="run")] == [("ada", "resumed")]


def test_stop_when_fenced_then_stays_fenced(store: Store, generation: GenerationRecord, make_new: MakeNew) -> None:
    store.generations.open(TRAIN, make_new())
    store.generations.stop(generation.key, GenerationState.FAILED, "INTERNAL", "late")
    assert store.generations.get(generation.key).state is GenerationState.FENCED


def test_note_when_open_then_reason_and_when_stopped_then_kept(store: Store, generation: GenerationRecord) -> None:
    store.generations.note(generation.key, "waiting for a loader")
    assert store.generations.get(generation.key).reason == "waiting for a loader"
    store.generations.stop(generation.key, GenerationState.PAUSED, "RUN_PAUSED", "too bad")
    store.generations.note(generation.key, "")
    assert store.generations.get(generation.key).reason == "too bad"


def test_joined_as_when_nonce_is_known_then_its_generation(
    store: Store, generation: GenerationRecord, make_new: MakeNew
) -> None:
    newer = store.generations.open(TRAIN, make_new(nonces=("c", "b")))
    assert store.generations.joined_as(TRAIN, 0, "a") == store.generations.get(generation.key)
    assert store.generations.joined_as(TRAIN, 1, "b") == newer
    assert store.generations.joined_as(TRAIN, 1, "a") is None


def test_lineage_when_resumed_twice_then_goes_up_to_the_start(
    store: Store, generation: GenerationRecord, make_new: MakeNew
) -> None:
    store.generations.open(TRAIN, make_new(parent=0, first_step=3))
    last = store.generations.open(TRAIN, make_new(parent=1, first_step=4))
    assert [g.key.generation for g in store.generations.lineage(last.key)] == [2, 1, 0]


def test_get_when_unknown_then_not_found(store: Store, generation: GenerationRecord) -> None:
    with pytest.raises(NotFoundError, match="run/train generation 7"):
        store.generations.get(GenerationKey(run="run", stream="train", generation=7))
    with pytest.raises(NotFoundError, match="no stream run/nope"):
        store.generations.newest(StreamKey(run="run", stream="nope"))
