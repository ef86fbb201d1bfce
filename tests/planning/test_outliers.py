"""Outlier delay: who waits, how long, and that nothing is lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadmaster_server.planning import PlannerState
from loadmaster_server.planning.outliers import MOST_HELD_STEPS, held_back, size_classes
from loadmaster_server.planning.pieces import DRAWN_AT

Make = Callable[..., Any]
CAPACITY, BINS = 64, 4


def _held(sizes: list[int], ages: list[int] | None = None, max_age: int = 5) -> list[int]:
    age_N = np.array(ages if ages is not None else [0] * len(sizes))
    held_N = held_back(np.array(sizes), age_N, num_bins=BINS, capacity=CAPACITY, max_age=max_age)
    return np.flatnonzero(held_N).tolist()


@pytest.mark.parametrize(
    ("size", "expected"),
    [(15, -1), (16, 0), (22, 0), (23, 1), (31, 1), (32, 2), (45, 2), (46, 3), (63, 3), (64, 4)],
)
def test_size_classes_when_a_size_is_given_then_it_is_told_by_half_octaves(size: int, expected: int) -> None:
    assert size_classes(np.array([size]), CAPACITY).tolist() == [expected]


def test_held_when_a_class_is_complete_then_the_oldest_of_it_go_on() -> None:
    assert _held([40, 40, 40, 1, 15]) == [0, 1, 2]
    assert _held([40, 40, 40, 1, 33, 41, 15]) == [5]


def test_held_when_a_bin_has_no_room_for_one_of_each_then_only_the_longer_class_goes_on() -> None:
    assert _held([50] * 4 + [40] * 4) == [4, 5, 6, 7]
    assert _held([40] * 4 + [20] * 4) == []


def test_held_when_a_piece_is_as_old_as_it_may_be_then_it_goes_on() -> None:
    assert _held([40, 40, 20], [5, 4, 7]) == [1]


def test_held_when_too_much_waits_then_the_oldest_go_on() -> None:
    assert MOST_HELD_STEPS * BINS * CAPACITY == 512
    sizes = [size for size in (35, 50, 64, 25, 18) for _ in range(3)]  # 576 in all
    assert _held(sizes) == list(range(2, 15))


@given(
    sizes=st.lists(st.integers(1, CAPACITY), max_size=80),
    max_age=st.integers(1, 6),
    data=st.data(),
)
def test_held_when_any_pieces_wait_then_every_rule_holds(sizes: list[int], max_age: int, data: st.DataObject) -> None:
    ages = sorted(data.draw(st.lists(st.integers(0, 8), min_size=len(sizes), max_size=len(sizes))), reverse=True)
    held = _held(sizes, ages, max_age)
    assert all(sizes[i] >= CAPACITY // 4 and ages[i] < max_age for i in held)
    assert sum(sizes[i] for i in held) <= MOST_HELD_STEPS * BINS * CAPACITY
    class_N = size_classes(np.array(sizes, np.int64), CAPACITY)
    for number in range(5):
        of_class = [i for i in range(len(sizes)) if class_N[i] == number and ages[i] < max_age]
        gone = [i for i in of_class if i not in held]
        assert gone == of_class[: len(gone)]  # never a younger one before an older one


def _lengths(seed: int, num: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(num) < 0.1, rng.integers(300, 1100, num), rng.integers(1, 120, num)).tolist()


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), max_age=st.integers(1, 8), stop_after=st.integers(0, 12))
def test_steps_when_outliers_are_delayed_then_none_is_lost_or_too_old_and_a_restart_goes_on_equally(
    make_rig: Make, spec_of: Make, seed: int, max_age: int, stop_after: int
) -> None:
    lengths = [_lengths(seed, 250), _lengths(seed + 1, 250)]
    spec = spec_of(2, weights=[0.7, 0.3], seq_len=1024, until={"epochs": 1}, outlier_delay={"max_age_steps": max_age})
    rig = make_rig(spec, lengths)
    plans, states = [], [rig.planner.state()]
    while not rig.planner.is_over:
        plans.append(rig.next())
        states.append(rig.planner.state())
        age_N = rig.planner.step - rig.planner.state().queue.values_NP[:, DRAWN_AT]
        assert age_N.max(initial=0) <= max_age + 2
    assert sum(plan.num_tokens for plan in plans) == sum(map(sum, lengths))
    data = states[min(stop_after, len(plans))].to_bytes()
    again = make_rig(spec, lengths, state=PlannerState.from_bytes(data))
    rest = again.steps() if not again.planner.is_over else []
    assert [plan.digest for plan in rest] == [plan.digest for plan in plans[min(stop_after, len(plans)) :]]


def _costliest_over_mean(rig: Any, plan: Any) -> float:
    """Of the bins, with attention as dear as the rest at seq_len."""
    tokens_N = rig.tokens_of(plan)
    cost_B = np.bincount(plan.pieces.bin, weights=tokens_N * (plan.seq_len + tokens_N), minlength=plan.num_bins)
    return float(cost_B.max() / cost_B.mean())


def test_steps_when_outliers_are_delayed_then_microbatches_cost_alike(make_rig: Make, spec_of: Make) -> None:
    lengths, costs = [_lengths(1, 4000)], []
    for delay in (None, {"max_age_steps": 40}):
        rig = make_rig(spec_of(1, seq_len=1024, microbatches=16, outlier_delay=delay), lengths)
        costs.append(np.mean([_costliest_over_mean(rig, plan) for plan in rig.steps(40)[5:]]))
    assert costs[0] > 1.4
    assert costs[1] < 1.25


@pytest.mark.parametrize("layout", ["pad", "concat"])
def test_spec_when_outliers_are_delayed_in_another_layout_then_it_is_refused(spec_of: Make, layout: str) -> None:
    with pytest.raises(ValueError, match="outlier_delay needs layout pack, got " + layout):
        spec_of(1, layout=layout, outlier_delay={"max_age_steps": 3})
