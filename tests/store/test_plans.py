from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loadmaster_flight.wire.errors import GoneError, InternalError
from loadmaster_server.store import (
    Definition,
    GenerationKey,
    NewGeneration,
    PlannedStep,
    PlanRecord,
    Store,
    StreamKey,
    VerdictKind,
    VerdictRecord,
)

TRAIN = StreamKey(run="run", stream="train")
BAD_ROW = VerdictRecord(
    kind=VerdictKind.MEASURED, source=0, epoch=0, shard=1, block=0, row=5, verdict=2, reason="not UTF-8"
)
MakePlan = Callable[..., PlanRecord]


@pytest.fixture
def key(
    store: Store, make_definition: Callable[..., Definition], make_new: Callable[..., NewGeneration]
) -> GenerationKey:
    """An open generation of run/train."""
    store.runs.create(make_definition())
    return store.generations.open(TRAIN, make_new()).key


def test_commit_when_in_order_then_read_back(store: Store, key: GenerationKey, make_plan: MakePlan) -> None:
    plans = [make_plan(step, is_final=step == 3) for step in range(4)]
    for plan in plans:
        store.plans.commit(key, plan, checkpoint=None)
    generation = store.generations.get(key)
    assert store.plans.read(key, 1, 3) == plans[1:3]
    assert store.plans.read(key, 4, 9) == []
    assert (generation.planned, generation.end_step) == (4, 4)


def test_commit_when_a_step_is_left_out_then_refused(store: Store, key: GenerationKey, make_plan: MakePlan) -> None:
    with pytest.raises(InternalError, match="step 1 was planned, but the next one to plan is 0"):
        store.plans.commit(key, make_plan(1), checkpoint=None)
    assert store.plans.read(key, 0, 9) == []


def test_commit_when_fenced_then_gone_and_nothing_is_written(
    store: Store, key: GenerationKey, make_plan: MakePlan, make_new: Callable[..., NewGeneration]
) -> None:
    store.generations.open(TRAIN, make_new())
    with pytest.raises(GoneError, match="step 0 is not planned"):
        store.plans.commit(key, make_plan(0), checkpoint=b"state", verdicts=[BAD_ROW])
    assert store.plans.read(key, 0, 9) == []
    assert store.plans.checkpoint(key, 9) is None
    assert store.plans.num_verdicts("run") == 0


def test_commit_all_when_several_then_as_if_one_by_one(store: Store, key: GenerationKey, make_plan: MakePlan) -> None:
    plans = [make_plan(step, is_final=step == 3) for step in range(4)]
    again = replace(BAD_ROW, epoch=1)
    rests: list[dict[str, Any]] = [{"verdicts": [BAD_ROW]}, {"checkpoint": b"2"}, {"verdicts": [again]}, {}]
    store.plans.commit_all(key, [PlannedStep(plan=plan, **rest) for plan, rest in zip(plans, rests, strict=True)])
    generation = store.generations.get(key)
    assert store.plans.read(key, 0, 9) == plans
    assert (generation.planned, generation.bound, generation.end_step) == (4, 0, 4)
    assert store.plans.checkpoint(key, 9) == (2, b"2")
    assert store.plans.num_verdicts("run") == 1


def test_commit_all_when_only_some_are_replayed_then_those_are_bound(
    store: Store, key: GenerationKey, make_plan: MakePlan, make_new: Callable[..., NewGeneration]
) -> None:
    child = store.generations.open(TRAIN, replace(make_new(), replay_until=2)).key
    store.plans.commit_all(child, [PlannedStep(plan=make_plan(step)) for step in range(3)])
    assert store.generations.get(child).bound == 2


def test_checkpoint_when_several_then_the_newest_at_or_before(
    store: Store, key: GenerationKey, make_plan: MakePlan
) -> None:
    for step in range(6):
        store.plans.commit(key, make_plan(step), checkpoint=b"%d" % step if step % 2 else None)
    assert store.plans.checkpoint(key, 1) is None
    assert store.plans.checkpoint(key, 5) == (4, b"3")
    assert store.plans.checkpoint(key, 99) == (6, b"5")


def test_journal_when_a_sample_is_judged_again_then_written_once(store: Store, key: GenerationKey) -> None:
    store.plans.journal("run", [BAD_ROW, replace(BAD_ROW, row=6)])
    store.plans.journal("run", [replace(BAD_ROW, epoch=1, reason="again")])
    assert store.plans.num_verdicts("run") == 2


def test_journal_when_masked_in_two_steps_then_both_are_kept(store: Store, key: GenerationKey) -> None:
    masked = replace(BAD_ROW, kind=VerdictKind.MASKED, stream="train", step=4)
    store.plans.journal("run", [BAD_ROW, masked, masked, replace(masked, step=9)])
    assert store.plans.num_verdicts("run") == 3


def test_verdicts_when_read_back_then_by_stream_and_step(store: Store, key: GenerationKey) -> None:
    of_train = replace(BAD_ROW, stream="train")
    masked = replace(of_train, kind=VerdictKind.MASKED, step=4)
    too_long = replace(of_train, kind=VerdictKind.OVER_LONG, row=9)
    entries = [of_train, too_long, replace(BAD_ROW, stream="other", row=8), masked, replace(masked, row=6)]
    store.plans.journal("run", [*entries, replace(masked, step=7)])
    assert store.verdicts.measured(TRAIN) == [of_train]
    assert store.verdicts.masked(TRAIN, 0, 7) == {4: ((0, 0, 1, 0, 5), (0, 0, 1, 0, 6))}
    assert store.verdicts.masked(TRAIN, 5, 7) == {}


def test_left_out_when_counted_then_by_source_and_verdict_with_the_last_reason(
    store: Store, key: GenerationKey
) -> None:
    of_train = replace(BAD_ROW, stream="train")
    masked = replace(of_train, kind=VerdictKind.MASKED, step=4, reason="cut")
    other_source = replace(of_train, source=1, verdict=1, reason="empty")
    rows = [
        of_train,
        replace(of_train, row=7, reason="no JPEG"),
        masked,
        other_source,
        replace(BAD_ROW, stream="other"),
    ]
    store.plans.journal("run", rows)
    found = [(v.source, v.kind, v.verdict, v.reason, count) for v, count in store.verdicts.left_out(TRAIN)]
    assert found == [
        (0, VerdictKind.MASKED, 2, "cut", 1),
        (0, VerdictKind.MEASURED, 2, "no JPEG", 2),
        (1, VerdictKind.MEASURED, 1, "empty", 1),
    ]


def test_lineage_summary_when_step_is_the_parents_then_from_its_log(
    store: Store, key: GenerationKey, make_plan: MakePlan, make_new: Callable[..., NewGeneration]
) -> None:
    for step in range(4):
        store.plans.commit(key, make_plan(step), checkpoint=None)
    child = store.generations.open(TRAIN, make_new(parent=0, first_step=2))
    store.plans.commit(child.key, replace(make_plan(2), summary={"total_tokens": [7, 7]}), checkpoint=None)
    assert store.plans.lineage_summary(child, 1) == {"total_tokens": [20, 0]}
    assert store.plans.lineage_summary(child, 2) == {"total_tokens": [7, 7]}
    assert store.plans.lineage_summary(child, 3) is None
