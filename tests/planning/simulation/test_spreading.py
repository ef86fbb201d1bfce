"""A context-parallel size for every microbatch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_server.planning.simulation import microbatch_floor, spread_context, step_time

RANKS, PER_RANK, CAPACITY = 8, 2, 64


@st.composite
def documents(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Sizes (some of several microbatches) and quadratic costs."""
    size_N = np.array(draw(st.lists(st.integers(1, 40), min_size=1, max_size=12)) + draw(
        st.lists(st.integers(65, 250), max_size=2)), np.int64)  # fmt: skip
    return size_N, size_N * 30.0 + size_N.astype(np.float64) ** 2


@given(documents())
def test_spread_context_for_any_documents_keeps_cost_and_capacity(case: tuple[np.ndarray, np.ndarray]) -> None:
    size_N, cost_N = case
    spread = spread_context(size_N, cost_N, num_ranks=RANKS, per_rank=PER_RANK, capacity=CAPACITY, largest=8)

    is_in_N = spread.slot_N >= 0
    assert spread.cost_DM.sum() == pytest.approx(cost_N[is_in_N].sum())
    assert spread.used_DM.max() <= CAPACITY
    rebuilt_DM = np.zeros_like(spread.cost_DM)
    for slot, width, cost in zip(spread.slot_N[is_in_N], spread.cp_N[is_in_N], cost_N[is_in_N], strict=True):
        rank, m = divmod(int(slot), PER_RANK)
        assert rank % width == 0
        rebuilt_DM[rank : rank + width, m] += cost / width
        assert width == 1 or (spread.spread_DM[rank : rank + width, m] == width).all()
    np.testing.assert_allclose(rebuilt_DM, spread.cost_DM)
    step_time(spread.cost_DM, 3, spread_DM=spread.spread_DM)  # the groups are ones that can be simulated


def test_spread_context_when_there_is_a_giant_goes_under_the_floor_of_a_fixed_size() -> None:
    size_N = np.array([200] + [8] * 60, np.int64)
    cost_N = size_N.astype(np.float64) ** 2
    sizes = {"num_ranks": RANKS, "per_rank": PER_RANK, "capacity": CAPACITY}
    fixed = spread_context(size_N, cost_N, **sizes, smallest=4, largest=4)
    own = spread_context(size_N, cost_N, **sizes, largest=8)

    floor = microbatch_floor(cost_N, RANKS * PER_RANK, 4)
    assert (fixed.cp_N == 4).all()
    assert own.cp_N.tolist() == [8] + [1] * 60
    assert fixed.cost_DM.max() / fixed.cost_DM.mean() >= floor
    assert own.cost_DM.max() / own.cost_DM.mean() < floor
    assert microbatch_floor(cost_N, RANKS * PER_RANK, 8) == pytest.approx(floor / 2)


def test_spread_context_when_a_document_fits_nowhere_leaves_it_out() -> None:
    spread = spread_context(np.array([520]), np.array([1.0]), num_ranks=8, per_rank=1, capacity=64, largest=8)
    assert spread.slot_N.tolist() == [-1]


@pytest.mark.parametrize(("smallest", "largest"), [(1, 3), (4, 2), (1, 16), (0, 4)])
def test_spread_context_when_a_size_is_impossible_names_the_rule(smallest: int, largest: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        spread_context(
            np.array([4]), np.array([1.0]), num_ranks=8, per_rank=1, capacity=64, smallest=smallest, largest=largest
        )
