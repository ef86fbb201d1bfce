"""Shares in integers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.spec import Ramp
from loadmaster_server.planning.mixture import ONE, apportion, shares_at, spread_credit, weights_of

SHARES = st.lists(st.integers(0, 1 << 33), min_size=1, max_size=40).filter(any)


@given(total=st.integers(-(1 << 80), 1 << 80), shares=SHARES)
def test_apportion_when_split_then_each_part_is_within_one_of_exact_and_they_sum(total: int, shares: list[int]) -> None:
    parts = apportion(total, shares)
    assert sum(parts) == total
    for part, share in zip(parts, shares, strict=True):
        assert abs(part - Fraction(total * share, sum(shares))) < 1


def test_apportion_when_remainders_tie_then_the_lower_index_gets_more() -> None:
    assert apportion(5, [1, 1, 0, 1]) == [2, 2, 0, 1]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([1.0], [ONE]), ([1.0, 0.0], [ONE, 0]), ([3.0, 1.0], [3 * ONE // 4, ONE // 4]), ([1e-30, 1.0], [1, ONE - 1])],
)
def test_weights_when_normalised_then_they_sum_to_one_and_none_starves(
    weights: list[float], expected: list[int]
) -> None:
    ramps = [Ramp.model_validate(weight) for weight in weights]
    assert weights_of(shares_at(ramps, 0), [True] * len(ramps)) == expected


def test_weights_when_a_source_is_not_live_then_the_others_share_its_weight() -> None:
    assert weights_of([2, 1, 1], [False, True, True]) == [0, ONE // 2, ONE // 2]
    assert weights_of([2, 0], [False, True]) == [0, 0]


def test_spread_credit_when_a_source_loses_its_weight_then_the_sum_stays() -> None:
    assert spread_credit([10, -4, -6], [0, ONE // 2, ONE // 2]) == [0, 1, -1]
