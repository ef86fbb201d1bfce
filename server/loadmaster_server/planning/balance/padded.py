"""Balance where every bin holds the same number of pieces.

# N = pieces, D = ranks, M = bins of a rank
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .board import bins_of
from .grouping import deal, even_quota, members
from .limits import Limits
from .numbering import slots
from .swaps import level_by_bins

RANK_GOAL = 1.001


@compiled
def solve_padded(cost_N: Float64Array, slow_D: Float64Array, per_rank: int, extra: float) -> Int64Array:
    """Bin rank * M + m of each piece, int64 (N,); counts of bins differ by one at most."""
    rank_N = deal_evenly(cost_N, slow_D)
    cost_B, bin_N = np.zeros(len(slow_D) * per_rank), np.empty(len(cost_N), np.int64)
    for rank in range(len(slow_D)):
        index = np.flatnonzero(rank_N == rank)
        part = deal_evenly(cost_N[index], np.ones(per_rank))
        for k in range(len(index)):
            bin_N[index[k]] = rank * per_rank + part[k]
            cost_B[bin_N[index[k]]] += cost_N[index[k]]
    limits = Limits(per_rank, 0, 0, extra, 0.0)
    bins_DM = np.arange(len(cost_B)).reshape(len(slow_D), per_rank)
    slot_B = slots(bins_of(bins_DM, cost_B, slow_D, limits))
    for i in range(len(bin_N)):
        bin_N[i] = slot_B[bin_N[i]]
    return bin_N


@compiled
def deal_evenly(cost_N: Float64Array, slow_D: Float64Array) -> Int64Array:
    """Part of each piece, int64 (N,): by cost, then by swaps of one piece for one where all parts have as many."""
    num_parts = len(slow_D)
    part_N = deal(cost_N, even_quota(len(cost_N), num_parts), slow_D, 0.0, 0.0)
    if len(cost_N) == 0 or len(cost_N) % num_parts:
        return part_N
    places = len(cost_N) // num_parts
    limits = Limits(places, 0, 0, 0.0, cost_N.sum() / len(cost_N))
    items = bins_of(members(part_N, num_parts, places), cost_N, slow_D, limits)
    level_by_bins(items, RANK_GOAL * cost_N.sum() / (1.0 / slow_D).sum())
    return items.rank_B
