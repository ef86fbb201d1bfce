"""Loaders that the planner is compared with, and stated lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_server.planning.simulation import (
    LEFT,
    Lengths,
    Mesh,
    ShuffleQuality,
    TokenBudget,
    encoder_time,
    fixed_count,
    images_at_home,
    next_fit,
)

SIZES = st.lists(st.integers(1, 64), max_size=80)


@given(SIZES, st.integers(1, 12))
def test_next_fit_for_any_sizes_closes_a_bin_only_when_the_next_sample_would_not_fit(sizes: list[int], n: int) -> None:
    bin_N, size_N = next_fit(sizes, n, 64), np.array(sizes, np.int64)

    placed = bin_N != LEFT
    assert (np.diff(placed.astype(int)) <= 0).all()
    used_B = np.bincount(bin_N[placed], size_N[placed], n)
    assert (used_B <= 64).all()
    for i in np.flatnonzero(np.diff(bin_N) != 0):
        assert used_B[bin_N[i]] + size_N[i + 1] > 64


def test_next_fit_when_a_sample_is_larger_than_a_bin_names_its_size() -> None:
    with pytest.raises(ValueError, match="at most 8, got 9"):
        next_fit([3, 9], 4, 8)


@given(st.integers(0, 100), st.integers(1, 12))
def test_fixed_count_for_any_number_differs_by_one_at_most(num: int, bins: int) -> None:
    count_B = np.bincount(fixed_count(num, bins), minlength=bins)
    assert count_B.sum() == num
    assert count_B.max() - count_B.min() <= 1


def test_token_budget_when_a_step_is_not_full_keeps_its_samples() -> None:
    loader = TokenBudget(Mesh(dp=2))

    assert loader.read(np.array([6, 6]), np.array([6.0, 6.0]), 2, 8) == []
    (step,) = loader.read(np.array([4, 4]), np.array([4.0, 4.0]), 2, 8)

    assert (step.time, step.useful) == (6.0, 6.0)


def test_images_at_home_go_round_the_encoders_of_their_rank() -> None:
    consumer_K = images_at_home(np.array([1, 0, 1, 1, 0]), 2)
    assert consumer_K.tolist() == [2, 0, 3, 2, 1]
    assert encoder_time([1, 1, 1, 5, 1], consumer_K, 4) == 6


@pytest.mark.parametrize(("text", "mean"), [("lognormal:700,1.2", 1440), ("pareto:1.15,400", 1950), ("bimodal", 1630)])
def test_lengths_of_a_stated_distribution_have_its_mean_and_are_repeatable(text: str, mean: float) -> None:
    lengths = Lengths.parse(text)
    drawn_N = lengths(np.random.default_rng(0), 200_000)

    assert drawn_N.mean() == pytest.approx(mean, rel=0.04)
    assert drawn_N.min() >= 1
    assert drawn_N.max() <= lengths.longest
    np.testing.assert_array_equal(drawn_N, lengths(np.random.default_rng(0), 200_000))


@pytest.mark.parametrize("text", ["zipf", "lognormal:700,-1", "lognormal:a", "pareto:1,2,3", "lognormal:nan", ""])
def test_lengths_when_they_are_not_stated_well_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match="lengths"):
        Lengths.parse(text)


def test_shuffle_quality_of_equal_shares_is_their_number() -> None:
    quality = ShuffleQuality(lanes=4, num_blocks=8)
    for _ in range(3):
        quality.add(np.tile(np.arange(4), 500), np.zeros(2000, np.int64))

    assert quality.effective_blocks == pytest.approx(4.0, rel=0.01)
    assert quality.share_of_perfect == pytest.approx(0.5, rel=0.01)


def test_shuffle_quality_before_two_samples_is_unknown() -> None:
    quality = ShuffleQuality(lanes=4, num_blocks=8)
    quality.add(np.array([3]), np.array([0]))

    assert quality.effective_blocks is None
    assert quality.share_of_perfect is None
