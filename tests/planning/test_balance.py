"""The balance of a step: nothing lost, caps kept, no slot empty, the same bytes."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_server.planning.balance import Balanced, balance
from loadmaster_server.planning.pack import best_fit

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    size_N: Int64Array
    cost_N: Int64Array
    packed_N: Int64Array
    num_ranks: int
    per_rank: int
    capacity: int

    def balance(self, **options: object) -> Balanced:
        return balance(
            self.size_N, self.cost_N, self.packed_N,
            num_ranks=self.num_ranks, per_rank=self.per_rank, capacity=self.capacity, **options,
        )  # fmt: skip


def packed(sizes: list[int], num_ranks: int, per_rank: int, capacity: int, cost: Callable[[int], int]) -> Case:
    """What fits of the sizes, by best fit, the largest first."""
    order = sorted(sizes, reverse=True)
    bin_N = np.asarray(best_fit(np.asarray(order, np.int64), num_ranks * per_rank, capacity))
    size_N = np.array(order, np.int64)[bin_N >= 0]
    cost_N = np.array([cost(size) for size in size_N.tolist()], np.int64)
    return Case(
        size_N=size_N, cost_N=cost_N, packed_N=bin_N[bin_N >= 0],
        num_ranks=num_ranks, per_rank=per_rank, capacity=capacity,
    )  # fmt: skip


COSTS: dict[str, Callable[[int], int]] = {
    "attention": lambda size: 65_536 * size + 16 * size * size,
    "linear": lambda size: size,
    "unrelated": lambda size: size * 7919 % 1009,
    "nothing": lambda size: 0,
}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_ranks, per_rank = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    capacity = draw(st.sampled_from([8, 37, 256]))
    fill = draw(st.floats(0.05, 1.3))
    longest = draw(st.integers(1, capacity))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = int(fill * num_ranks * per_rank * capacity / (longest / 2 + 1)) + 1
    sizes = rng.integers(1, longest + 1, count).tolist()
    return packed(sizes, num_ranks, per_rank, capacity, COSTS[draw(st.sampled_from(sorted(COSTS)))])


def long_tail(num_ranks: int, capacity: int, seed: int = 0, occupancy: float = 1.01) -> Case:
    rng = np.random.default_rng(seed)
    drawn = np.ceil(rng.lognormal(np.log(44), 1.2, 400 * num_ranks * capacity // 512)).clip(1, capacity).astype(int)
    count = int(np.searchsorted(np.cumsum(drawn), occupancy * num_ranks * 8 * capacity))
    return packed(drawn[:count].tolist(), num_ranks, 8, capacity, COSTS["attention"])


@settings(deadline=None, max_examples=300)
@given(cases(), st.integers(1, 4))
def test_balance_then_every_piece_has_one_bin_within_its_caps(case: Case, pp: int) -> None:
    max_docs = int(np.bincount(case.packed_N).max())
    bin_N = case.balance(pp=pp, max_docs=max_docs).bin_N
    num_bins = case.num_ranks * case.per_rank
    assert bin_N.shape == case.size_N.shape
    assert bin_N.dtype == np.int64
    assert np.isin(bin_N, np.arange(num_bins)).all()
    assert np.bincount(bin_N, case.size_N).max() <= case.capacity
    assert np.bincount(bin_N).max() <= max_docs


@settings(deadline=None, max_examples=300)
@given(cases())
def test_balance_when_there_are_enough_pieces_then_no_slot_is_empty(case: Case) -> None:
    num_bins = case.num_ranks * case.per_rank
    filled = len(np.unique(case.balance().bin_N))
    if len(case.size_N) >= num_bins:
        assert filled == num_bins


@settings(deadline=None, max_examples=100)
@given(cases(), st.integers(1, 4))
def test_balance_when_repeated_then_same_bytes(case: Case, pp: int) -> None:
    assert case.balance(pp=pp).bin_N.tobytes() == case.balance(pp=pp).bin_N.tobytes()


@settings(deadline=None, max_examples=50)
@given(cases(), st.randoms())
def test_balance_when_pieces_arrive_in_another_order_then_each_gets_the_same_bin(case: Case, random: object) -> None:
    key_N = np.arange(len(case.size_N))
    arrival = key_N.copy()
    random.shuffle(arrival)
    canonical = np.argsort(key_N[arrival])
    again = balance(
        case.size_N[arrival][canonical], case.cost_N[arrival][canonical], case.packed_N[arrival][canonical],
        num_ranks=case.num_ranks, per_rank=case.per_rank, capacity=case.capacity,
    )  # fmt: skip
    assert again.bin_N.tolist() == case.balance().bin_N.tolist()


@settings(deadline=None, max_examples=200)
@given(cases())
def test_balance_then_figures_are_those_of_the_bins_and_not_below_the_bounds(case: Case) -> None:
    result = case.balance()
    cost_B = np.bincount(result.bin_N, case.cost_N, case.num_ranks * case.per_rank)
    cost_D = cost_B.reshape(case.num_ranks, -1).sum(axis=1)
    if case.cost_N.any():
        assert result.rank_max_over_mean == pytest.approx(cost_D.max() / cost_D.mean())
        assert result.microbatch_max_over_mean == pytest.approx(cost_B.max() / cost_B.mean())
        assert result.rank_max_over_mean >= result.rank_bound * (1 - 1e-9)
        assert result.microbatch_max_over_mean >= result.microbatch_bound * (1 - 1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.sampled_from(["attention", "linear", "unrelated"]))
def test_balance_then_no_placement_at_all_is_below_the_bounds(sizes: list[int], cost: str) -> None:
    case = packed(sizes, 2, 2, 10, COSTS[cost])
    if not case.cost_N.any():
        return
    result, mean = case.balance(), case.cost_N.sum() / 4
    for bins in itertools.product(range(4), repeat=len(case.size_N)):
        if np.bincount(bins, case.size_N).max() <= 10:
            cost_B = np.bincount(bins, case.cost_N, 4)
            assert cost_B.max() / mean >= result.microbatch_bound * (1 - 1e-9)
            assert max(cost_B[:2].sum(), cost_B[2:].sum()) / (2 * mean) >= result.rank_bound * (1 - 1e-9)


@pytest.mark.parametrize("capacity", [512, 2048])
@pytest.mark.parametrize("num_ranks", [8, 32])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_balance_when_bins_are_nearly_full_then_ranks_are_even(num_ranks: int, capacity: int, seed: int) -> None:
    result = long_tail(num_ranks, capacity, seed).balance()
    assert result.rank_max_over_mean <= max(1.006, 1.01 * result.rank_bound)
    assert result.microbatch_max_over_mean <= 1.015 * result.microbatch_bound


@pytest.mark.parametrize("occupancy", [0.5, 0.9, 0.95, 0.99, 0.995])
def test_balance_when_packing_left_its_slack_in_few_bins_then_ranks_are_even(occupancy: float) -> None:
    case = long_tail(16, 512, occupancy=occupancy)
    result = case.balance()
    assert result.rank_max_over_mean <= 1.006
    assert case.size_N.sum() / (16 * 8 * 512) == pytest.approx(occupancy, abs=0.01)


def test_balance_when_long_and_short_are_packed_apart_then_microbatches_are_even() -> None:
    rng = np.random.default_rng(5)
    long, short = rng.integers(150, 500, 640), rng.integers(5, 60, 3000)
    case = packed([*long.tolist(), *short.tolist()], 16, 8, 2048, COSTS["attention"])
    result = case.balance()
    packed_B = np.bincount(case.packed_N, case.cost_N)
    assert packed_B.max() / packed_B.mean() > 1.02
    assert result.microbatch_max_over_mean <= 1.015


def test_balance_when_no_piece_then_nothing_is_placed() -> None:
    result = balance([], [], [], num_ranks=2, per_rank=2, capacity=8)
    assert result.bin_N.tolist() == []
    assert result.rank_max_over_mean == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_ranks": 0}, "num_ranks must be at least 1, got 0"),
        ({"pp": 0}, "pp must be at least 1, got 0"),
        ({"group_size": 3}, "group_size must divide the 2 ranks, got 3"),
        ({"speed_D": [1.0, 0.0]}, "speed_D must be 2 finite numbers above 0"),
        ({"cost_N": [1, -1]}, "cost_N must be at least 0"),
        ({"cost_N": [2**52, 2**52]}, r"sum to less than 2\*\*53"),
        ({"size_N": [0, 4]}, "size_N must be at least 1"),
        ({"packed_N": [0, 4]}, r"packed_N in \[0, 4\)"),
        ({"packed_N": [0]}, "must be as many, got 2, 2, 1"),
        ({"packed_N": [1, 1]}, "a packed bin must hold at most 6 .* got 8 in 2 in bin 1"),
        ({"packed_N": [1, 1], "capacity": 8, "max_docs": 1}, "in at most 1 pieces"),
    ],
)
def test_balance_when_an_argument_is_wrong_then_names_rule_and_value(changes: dict[str, object], message: str) -> None:
    arguments = {"size_N": [4, 4], "cost_N": [1, 1], "packed_N": [0, 1], "num_ranks": 2, "per_rank": 2, "capacity": 6}
    with pytest.raises(ValueError, match=message):
        balance(**arguments | changes)
