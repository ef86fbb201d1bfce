from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.spec import ScheduleSpec
from loadmaster_server.schedules.merge import Side, changed_fields, entries, merge

MakeSchedule = Callable[..., ScheduleSpec]

NAMES = ("web", "code", "math")
_WEIGHTS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3), max_size=3)
_SCHEDULES = st.builds(
    lambda weights, retired, g: ScheduleSpec.model_validate(
        {"weights": weights, "retired": list(retired), "microbatches": g, "seq_len": 64}
    ),
    _WEIGHTS,
    st.sets(st.sampled_from(NAMES)),
    st.integers(1, 3),
)


def test_merge_when_sources_are_disjoint_then_both_changes_are_in(make_schedule: MakeSchedule) -> None:
    merged = merge(make_schedule(), make_schedule(web=5), make_schedule(code=2))
    assert merged.conflicts == ()
    assert merged.schedule == make_schedule(web=5, code=2)


def test_merge_when_one_source_changes_in_two_ways_then_named_and_mine_kept(make_schedule: MakeSchedule) -> None:
    merged = merge(make_schedule(), make_schedule(web=5, code=2), make_schedule(web=6))
    assert [conflict.field for conflict in merged.conflicts] == ["weights.web"]
    values = [entry.ramp.at(0) for entry in (merged.conflicts[0].base, merged.conflicts[0].theirs) if entry.ramp]
    assert values == [3, 6]
    assert merged.schedule == make_schedule(web=5, code=2)


def test_merge_when_both_make_the_same_change_then_no_conflict(make_schedule: MakeSchedule) -> None:
    assert merge(make_schedule(), make_schedule(web=5), make_schedule(web=5)).conflicts == ()


def test_merge_when_a_side_is_chosen_then_it_wins(make_schedule: MakeSchedule) -> None:
    base, mine, theirs = make_schedule(), make_schedule(web=5, seq_len=32), make_schedule(web=6, seq_len=48)
    merged = merge(base, mine, theirs, {"weights.web": Side.THEIRS, "seq_len": Side.MINE})
    assert merged.conflicts == ()
    assert merged.schedule == make_schedule(web=6, seq_len=32)


def test_merge_when_i_retire_what_they_weigh_anew_then_conflict(make_schedule: MakeSchedule) -> None:
    merged = merge(make_schedule(), make_schedule(retired=["code"]), make_schedule(code=9))
    assert [conflict.field for conflict in merged.conflicts] == ["weights.code"]
    assert merged.conflicts[0].mine.is_retired


def test_merge_when_they_add_a_source_then_it_is_in(make_schedule: MakeSchedule) -> None:
    merged = merge(make_schedule(), make_schedule(web=5), make_schedule(math=1))
    assert merged.schedule == make_schedule(web=5, math=1)


def test_merge_when_i_take_a_source_out_then_it_is_out(make_schedule: MakeSchedule) -> None:
    merged = merge(make_schedule(), make_schedule(weights={"web": 3}), make_schedule(microbatches=8))
    assert merged.schedule == make_schedule(weights={"web": 3}, microbatches=8)


@given(base=_SCHEDULES, mine=_SCHEDULES, theirs=_SCHEDULES)
def test_merge_of_any_three_then_each_field_is_of_a_side_that_changed_it(
    base: ScheduleSpec, mine: ScheduleSpec, theirs: ScheduleSpec
) -> None:
    merged = merge(base, mine, theirs)
    my, their = set(changed_fields(base, mine)), set(changed_fields(base, theirs))
    conflicts = {conflict.field for conflict in merged.conflicts}
    assert conflicts == {field for field in my & their if entries(mine).get(field) != entries(theirs).get(field)}
    assert set(changed_fields(merged.schedule, mine)) == their - my
    assert not set(changed_fields(merged.schedule, theirs)) - my


@given(base=_SCHEDULES, mine=_SCHEDULES)
def test_merge_when_they_changed_nothing_then_mine(base: ScheduleSpec, mine: ScheduleSpec) -> None:
    assert merge(base, mine, base).schedule == mine == merge(base, base, mine).schedule
