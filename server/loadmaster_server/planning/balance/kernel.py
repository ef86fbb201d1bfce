"""The balance of one step: LPT where there is room for it, else packed bins grouped; then repair.

# N = pieces, B = bins, D = ranks, M = bins of a rank
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .board import Bins, bins_of, pieces_of, sums_by_bin
from .bounds import densities, lower_bound
from .grouping import deal, members
from .limits import Limits
from .lpt import place_by_cost
from .numbering import fill_empty, slots
from .sorting import descending
from .swaps import level_by_bins, level_by_pieces
from .trades import level_inside

LPT, PACKED = 0, 1
LEAST_SLACK = 0.01
RANK_GOAL, RANK_GOAL_OVER_BOUND = 1.003, 1.0005
MICROBATCH_GOAL_OVER_BOUND = 1.005


@compiled
def solve(
    size_N: Int64Array, cost_N: Float64Array, packed_N: Int64Array, slow_D: Float64Array, limits: Limits
) -> tuple[Int64Array, int, float, float]:
    """Final bin of each piece, int64 (N,), how it was found, and the bounds of rank and microbatch cost."""
    num_ranks, per_rank = len(slow_D), limits.per_rank
    order_N = descending(cost_N)
    classes = densities(size_N, cost_N)
    rank_bound = lower_bound(size_N, cost_N, order_N, classes, num_ranks, per_rank * limits.capacity)
    microbatch_bound = lower_bound(size_N, cost_N, order_N, classes, num_ranks * per_rank, limits.capacity)
    bin_N, bins, method = first_placement(size_N, cost_N, order_N, packed_N, slow_D, limits)
    repair(bins, size_N, cost_N, bin_N, rank_bound, microbatch_bound)
    slot_B = slots(bins)
    for i in range(len(bin_N)):
        bin_N[i] = slot_B[bin_N[i]]
    return bin_N, method, rank_bound, microbatch_bound


@compiled
def first_placement(
    size_N: Int64Array, cost_N: Float64Array, order_N: Int64Array, packed_N: Int64Array, slow_D: Float64Array,
    limits: Limits,
) -> tuple[Int64Array, Bins, int]:  # fmt: skip
    """LPT where there is slack for it and it places every piece; else the packed bins, dealt out to the ranks."""
    num_ranks, per_rank = len(slow_D), limits.per_rank
    num_bins = num_ranks * per_rank
    if num_bins * limits.capacity - size_N.sum() >= LEAST_SLACK * num_bins * limits.capacity:
        bin_N = place_by_cost(size_N, cost_N, order_N, slow_D, limits)
        if len(bin_N) == len(size_N):
            cost_B = sums_by_bin(cost_N, bin_N, num_bins)
            bins_DM = np.arange(num_bins).reshape(num_ranks, per_rank)
            return bin_N, bins_of(bins_DM, cost_B, slow_D, limits), LPT
    cost_B = sums_by_bin(cost_N, packed_N, num_bins)
    quota_D = np.full(num_ranks, per_rank, np.int64)
    bins_DM = members(deal(cost_B, quota_D, slow_D, limits.extra, limits.mean), num_ranks, per_rank)
    return packed_N.copy(), bins_of(bins_DM, cost_B, slow_D, limits), PACKED


@compiled
def repair(
    bins: Bins, size_N: Int64Array, cost_N: Float64Array, bin_N: Int64Array, rank_bound: float, microbatch_bound: float
) -> None:  # fmt: skip
    """No slot empty, ranks even, then the costliest bins; pieces are touched only where whole bins do not do."""
    num_bins = len(bins.cost_B)
    docs_B = np.zeros(num_bins, np.int64)
    for i in range(len(bin_N)):
        docs_B[bin_N[i]] += 1
    has_empty = len(bin_N) >= num_bins and docs_B.min() == 0
    mean = bins.cost_D.sum() / (1.0 / bins.slow_D).sum()
    target = max(RANK_GOAL * mean, RANK_GOAL_OVER_BOUND * rank_bound)
    highest = MICROBATCH_GOAL_OVER_BOUND * microbatch_bound
    if not has_empty:
        level_by_bins(bins, target)
        if bins.key_D.max() <= target and bins.cost_B.max() <= highest:
            return
    pieces = pieces_of(size_N, cost_N, bin_N, num_bins)
    if has_empty:
        fill_empty(bins, pieces)
    level_by_pieces(bins, pieces, target)
    level_inside(bins, pieces, highest, num_bins // 2 + 32)
