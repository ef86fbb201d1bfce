"""Rows that are not served: passed over, counted, and too many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.errors import DataError, RunPausedError
from loadmaster_flight.wire.schemas import METADATA, Verdict
from loadmaster_server.planning import PlannerState
from loadmaster_server.planning.known_verdicts import Judgement, KnownVerdicts
from loadmaster_server.planning.rows import TOKENS, VERDICT, tables_of

Make = Callable[..., Any]


def _some_bad(num: int, every: int) -> list[int]:
    return [-1 if i % every == every - 1 else 100 for i in range(num)]


def test_rows_when_skipped_or_bad_then_the_next_good_one_takes_the_place(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(2, until={"epochs": 1}), [[100, 0, 50, -1, 60], [70] * 5])
    plans = rig.steps()
    assert sum(len(plan.pieces) for plan in plans) == 8
    verdicts = rig.planner.new_verdicts()
    assert verdicts.schema.equals(METADATA)
    assert sorted((row["pos"], row["verdict"], row["reason"]) for row in verdicts.to_pylist()) == [
        (1, Verdict.SKIPPED, "empty text"),
        (3, Verdict.BAD, "invalid UTF-8"),
    ]
    assert rig.planner.new_verdicts().num_rows == 0


def test_mixture_when_a_source_has_bad_rows_then_its_share_stays(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(2, source={"max_bad_ratio": 1.0}), [_some_bad(200, 3), [100] * 200])
    rig.steps(20)
    first, second = rig.drawn_S().tolist()
    assert abs(first - second) <= 100


@pytest.mark.parametrize("lengths", [[0] * 40, [-1] * 10])
def test_epoch_when_every_row_is_skipped_then_the_source_and_reasons_are_named(
    make_rig: Make, spec_of: Make, lengths: list[int]
) -> None:
    rig = make_rig(spec_of(2), [[100] * 40, lengths])
    with pytest.raises(
        DataError, match=r"source s1, epoch 0: every row of an epoch was skipped: reasons (empty|invalid)"
    ):
        rig.next()


def test_epoch_when_every_row_is_too_long_then_that_is_the_reason(make_rig: Make, spec_of: Make) -> None:
    with pytest.raises(DataError, match="longer than 1024 tokens"):
        make_rig(spec_of(1, over_long="skip"), [[5000] * 4]).next()


def test_epoch_when_it_has_no_rows_then_the_source_is_named(make_rig: Make, spec_of: Make) -> None:
    with pytest.raises(DataError, match=r"source s0, epoch 0.*it has no rows"):
        make_rig(spec_of(1), [[]]).next()


def test_bad_rows_when_over_the_ratio_then_the_run_pauses_and_can_go_on(
    make_rig: Make, spec_of: Make, fake_source: Make
) -> None:
    lengths = [fake_source(_some_bad(1200, 10), 1, 1200), [100] * 1200]
    rig = make_rig(spec_of(2, source={"max_bad_ratio": 0.05}), lengths)
    with pytest.raises(
        RunPausedError, match=r"source s0: 20 of the last 200 rows are bad .0.100.*invalid UTF-8"
    ) as caught:
        rig.steps()
    assert caught.value.details["source"] == "s0"
    state = rig.planner.state()
    with pytest.raises(RunPausedError):
        rig.next()
    again = make_rig(
        spec_of(2, source={"max_bad_ratio": 0.05}), lengths, state=PlannerState.from_bytes(state.to_bytes())
    )
    with pytest.raises(RunPausedError):
        again.steps()
    assert again.planner.state().to_bytes() == rig.planner.state().to_bytes()
    lenient = make_rig(spec_of(2, source={"max_bad_ratio": 0.2}), lengths, state=state)
    assert len(lenient.steps(20)) == 20


@pytest.mark.parametrize(("num_bad", "is_paused"), [(19, False), (20, True)])
def test_bad_rows_when_under_20_then_the_run_goes_on(
    make_rig: Make, spec_of: Make, num_bad: int, is_paused: bool
) -> None:
    spec = spec_of(1, source={"max_bad_ratio": 0.01}, until={"epochs": 1})
    rig = make_rig(spec, [[-1] * num_bad + [100] * 500])
    if is_paused:
        with pytest.raises(RunPausedError):
            rig.steps()
    else:
        assert rig.steps()[-1].is_final


def test_bad_rows_when_spread_out_then_only_the_last_1000_count(
    make_rig: Make, spec_of: Make, fake_source: Make
) -> None:
    fake = fake_source(_some_bad(8000, 50), 1, 8000)
    rig = make_rig(spec_of(1, source={"max_bad_ratio": 0.02}, until={"epochs": 1}), [fake])
    assert rig.steps()[-1].is_final
    assert len(rig.planner.state().sources[0].bad_at) == 20


def test_bad_window_when_restored_midway_then_old_bad_rows_still_count(
    make_rig: Make, spec_of: Make, fake_source: Make
) -> None:
    rng = np.random.default_rng(3)
    lengths = np.where(rng.random(3000) < 0.03, -1, 100).tolist()
    fake = fake_source(lengths, 3, 16)
    spec = spec_of(1, source={"max_bad_ratio": 0.03})
    whole = make_rig(spec, [fake])
    with pytest.raises(RunPausedError) as expected:
        whole.steps()
    rig = make_rig(spec, [fake])
    while rig.planner.step < whole.planner.step:
        rig.next()
        rig = make_rig(spec, [fake], state=rig.planner.state())
    with pytest.raises(RunPausedError) as caught:
        rig.next()
    assert rig.planner.step == whole.planner.step
    assert str(caught.value).split(", the last")[0] == str(expected.value).split(", the last")[0]


def test_verdicts_when_recalled_then_rows_that_measure_well_now_are_left_out_again(
    make_rig: Make, spec_of: Make, pieces_of: Make
) -> None:
    broken, repaired = [100, 0, 50, -1, 60] * 20, [100, 90, 50, 80, 60] * 20
    spec = spec_of(2, until={"epochs": 3}, source={"max_bad_ratio": 1.0}, over_long="skip", seq_len=256)
    before = make_rig(spec, [broken, [70, 500] * 30])
    plans = before.steps()
    known = KnownVerdicts()
    for row in before.planner.new_verdicts().to_pylist():
        if not row["num_tokens"]:
            judgement = Judgement(row["epoch"], row["verdict"], row["reason"])
            known.add(row["source"], row["shard"], row["block"], row["row"], judgement)
    after = make_rig(spec, [repaired, [70, 500] * 30])
    after.planner.recall(known)
    assert [pieces_of(plan) for plan in after.steps()] == [pieces_of(plan) for plan in plans]
    assert after.planner.state().to_bytes() == before.planner.state().to_bytes()
    afresh = make_rig(spec, [repaired, [70, 500] * 30])
    assert [pieces_of(plan) for plan in afresh.steps()] != [pieces_of(plan) for plan in plans]


def test_verdicts_when_a_sample_measures_well_in_a_later_epoch_then_the_first_one_stands(batch_of: Make) -> None:
    known = KnownVerdicts()
    row = dict.fromkeys(METADATA.names, 0) | {"loss_spans": None, "reason": None, "image_patches": None}
    bad = row | {"epoch": 1, "shard": 2, "row": 5, "verdict": Verdict.BAD, "reason": "broken"}
    too_long = row | {"row": 6, "verdict": Verdict.SKIPPED, "num_tokens": 9, "reason": "too long"}
    ((_, table),) = tables_of(batch_of([bad, too_long]))
    known.add_rows(0, table)
    good = [bad | {"epoch": epoch, "verdict": Verdict.OK, "num_tokens": 7, "reason": None} for epoch in range(3)]
    others = [good[2] | change for change in ({"row": 4}, {"shard": 1}, {"block": 1})] + [row | {"num_tokens": 9}]
    ((_, fresh),) = tables_of(batch_of([*good, *others]))
    got = known.apply(0, fresh)
    assert got.values_NF[:, VERDICT].tolist() == [Verdict.OK, Verdict.BAD, Verdict.BAD, *[Verdict.OK] * 4]
    assert got.values_NF[:, TOKENS].tolist() == [7, 0, 0, 7, 7, 7, 9]
    assert got.reasons_N.tolist() == [None, "broken", "broken", *[None] * 4]
    assert known.apply(1, fresh) is fresh
