"""The balance of one step: packed bins dealt out to ranks, or LPT; then repair; the better one counts.

# N = pieces, B = bins, D = ranks, M = bins of a rank
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .board import Bins, Pieces, bins_of, pieces_of, recount, sums_by_bin
from .bounds import densities, lower_bound
from .grouping import deal, members
from .limits import Limits
from .lpt import place_by_cost
from .numbering import fill_empty, slots
from .room import place_left
from .sorting import descending
from .swaps import level_by_bins, level_by_pieces
from .trades import level_inside

LPT, PACKED, REPAIRED = 0, 1, 2
METHODS = ("lpt", "packed", "repaired")
LEAST_SLACK = 0.01
RANK_GOAL, RANK_GOAL_OVER_BOUND = 1.003, 1.005
RANK_NEAR_GOAL = 1.003
BIN_GOAL_OVER_BOUND = 1.01
OFFERS_PER_PIECE, MOST_OFFERS = 16, 1 << 19
EVEN_BINS = 0.01


class Step(NamedTuple):
    """What there is to place: sizes and costs of the pieces, and the pieces by cost, the costliest first."""

    size_N: Int64Array
    cost_N: Float64Array
    order_N: Int64Array


class Goal(NamedTuple):
    """Time of a rank and cost of a bin that are good enough; and what neither can go below."""

    rank: float
    bin: float
    rank_bound: float
    bin_bound: float


class Placement(NamedTuple):
    """Bins with the pieces in them, how they came about, and by how much they miss the goal (0: they meet it)."""

    bin_N: Int64Array
    bins: Bins
    method: int
    miss: float


@compiled
def solve(
    size_N: Int64Array, cost_N: Float64Array, packed_N: Int64Array, slow_D: Float64Array, limits: Limits
) -> tuple[Int64Array, int, float, float]:
    """Final bin of each piece, int64 (N,), how it was found, and the bounds of rank and microbatch cost."""
    step = Step(size_N, cost_N, descending(cost_N))
    goal = goal_of(step, slow_D, limits)
    best = placement_of(step, packed_N, slow_D, limits, goal)
    slot_B = slots(best.bins)
    for i in range(len(best.bin_N)):
        best.bin_N[i] = slot_B[best.bin_N[i]]
    return best.bin_N, best.method, goal.rank_bound, goal.bin_bound


@compiled
def goal_of(step: Step, slow_D: Float64Array, limits: Limits) -> Goal:
    """Goals a little above what is known to be out of reach."""
    num_ranks, per_rank, capacity = len(slow_D), limits.per_rank, limits.capacity
    classes = densities(step.size_N, step.cost_N)
    rank_bound = lower_bound(step.size_N, step.cost_N, step.order_N, classes, num_ranks, per_rank * capacity)
    bin_bound = lower_bound(step.size_N, step.cost_N, step.order_N, classes, num_ranks * per_rank, capacity)
    mean = step.cost_N.sum() / (1.0 / slow_D).sum()
    rank = RANK_GOAL * mean
    if rank_bound * slow_D.min() > mean:
        rank = max(rank, RANK_GOAL_OVER_BOUND * rank_bound * slow_D.min())
    rank += limits.extra * pipeline_excess(step, num_ranks, limits.mean) * slow_D.min()
    return Goal(rank, BIN_GOAL_OVER_BOUND * bin_bound, rank_bound, bin_bound)


@compiled
def pipeline_excess(step: Step, num_ranks: int, mean: float) -> float:
    """What a rank's costliest microbatch is above the mean, in the mean of the ranks, if documents alone decide it.

    The costliest documents, one a rank, can be evened out between ranks, not removed; what bins add can be levelled
    nearly to the mean.
    """
    excess = 0.0
    for i in step.order_N[:num_ranks]:
        excess += max(step.cost_N[i] - mean, EVEN_BINS * mean)
    return excess / num_ranks


@compiled
def placement_of(step: Step, packed_N: Int64Array, slow_D: Float64Array, limits: Limits, goal: Goal) -> Placement:
    """The first placement that meets the goal, or the one that misses it least.

    Near full, packed bins, dealt out to the ranks, nearly always do; where there is slack, packing has left it in few
    bins, and LPT comes first.
    """
    room = len(slow_D) * limits.per_rank * limits.capacity
    packed = deal_packed(step, packed_N, slow_D, limits)
    if room - step.size_N.sum() < LEAST_SLACK * room and packed.bins.cost_B.max() <= goal.bin:
        level_by_bins(packed.bins, goal.rank)
        packed = judged(step, packed, goal)
        if packed.miss == 0:
            return packed
    lpt = place_lpt(step, packed, goal)
    if lpt.method == LPT and lpt.miss == 0:
        return lpt
    is_placed, lpt_miss = lpt.method == LPT, lpt.miss
    is_ahead = lpt_miss < 1.0 and lpt.bins.cost_B.max() <= packed.bins.cost_B.max()
    if is_placed and is_ahead and lpt.bins.key_D.max() <= RANK_NEAR_GOAL * goal.rank:
        return lpt  # the goal is missed, but repair had its turn and packed bins would start from worse ones
    pieces = pieces_of(step.size_N, step.cost_N, packed.bin_N, len(packed.bins.cost_B))
    packed = repaired(step, Placement(packed.bin_N, packed.bins, REPAIRED, np.inf), pieces, goal)
    return lpt if is_placed and lpt_miss <= packed.miss else packed


@compiled
def deal_packed(step: Step, packed_N: Int64Array, slow_D: Float64Array, limits: Limits) -> Placement:
    """The packed bins, dealt out to the ranks by their cost."""
    num_ranks, per_rank = len(slow_D), limits.per_rank
    cost_B = sums_by_bin(step.cost_N, packed_N, num_ranks * per_rank)
    quota_D = np.full(num_ranks, per_rank, np.int64)
    bins_DM = members(deal(cost_B, quota_D, slow_D, limits.extra, limits.mean), num_ranks, per_rank)
    return Placement(packed_N.copy(), bins_of(bins_DM, cost_B, slow_D, limits), PACKED, np.inf)


@compiled
def place_lpt(step: Step, otherwise: Placement, goal: Goal) -> Placement:
    """LPT, room made for what it left over, repaired; `otherwise` where that cannot place every piece."""
    limits, slow_D = otherwise.bins.limits, otherwise.bins.slow_D
    bin_N = place_by_cost(step.size_N, step.cost_N, step.order_N, slow_D, limits)
    if len(bin_N) < len(step.size_N):
        return otherwise
    num_bins = len(slow_D) * limits.per_rank
    bins_DM = np.arange(num_bins).reshape(len(slow_D), limits.per_rank)
    bins = bins_of(bins_DM, sums_by_bin(step.cost_N, bin_N, num_bins), slow_D, limits)
    left = step.order_N[bin_N[step.order_N] < 0]
    placement = Placement(bin_N, bins, LPT, np.inf)
    if len(left) == 0:
        placement = judged(step, placement, goal)
        if placement.miss == 0:
            return placement
    pieces = pieces_of(step.size_N, step.cost_N, bin_N, num_bins)
    if not place_left(bins, pieces, left):
        return otherwise
    for rank in range(len(slow_D)):
        recount(bins, rank)
    return repaired(step, placement, pieces, goal)


@compiled
def docs_of(bin_N: Int64Array, num_bins: int) -> Int64Array:
    """Pieces of each bin, int64 (B,)."""
    docs_B = np.zeros(num_bins, np.int64)
    for i in range(len(bin_N)):
        docs_B[bin_N[i]] += 1
    return docs_B


@compiled
def judged(step: Step, placement: Placement, goal: Goal) -> Placement:
    """The placement with its miss: relative excess of rank and bin; 1 more if a slot is empty that need not be."""
    bin_N, bins = placement.bin_N, placement.bins
    miss = max(bins.key_D.max() / goal.rank - 1.0, 0.0) + max(bins.cost_B.max() / goal.bin - 1.0, 0.0)
    if len(bin_N) >= len(bins.cost_B) and docs_of(bin_N, len(bins.cost_B)).min() == 0:
        miss += 1.0
    return Placement(bin_N, bins, placement.method, miss)


@compiled
def repaired(step: Step, placement: Placement, pieces: Pieces, goal: Goal) -> Placement:
    """No slot empty, ranks even, then the costliest bins; changes the placement."""
    bins = placement.bins
    bins.offers_left[0] = min(OFFERS_PER_PIECE * len(pieces.bin_N), MOST_OFFERS)
    if len(pieces.bin_N) >= len(pieces.docs_B) and pieces.docs_B.min() == 0:
        fill_empty(bins, pieces)
    level_by_pieces(bins, pieces, goal.rank)
    level_inside(bins, pieces, goal.bin)
    return judged(step, placement, goal)
