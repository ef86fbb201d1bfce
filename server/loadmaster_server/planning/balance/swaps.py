"""Repair between ranks: the slowest rank and a fast one exchange what evens them out most.

# N = pieces, B = bins, D = ranks, M = bins of a rank
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from .board import Bins, Pieces, recount, time_with
from .sorting import descending
from .trades import move_best, trade_best

MOST_ROUNDS = 64
MOST_STALE = 8
PARTNERS = 4
MOST_EXCHANGES = 16
LEAST_GAIN = 1e-5


@compiled
def level_by_bins(bins: Bins, target: float) -> None:
    """Swap whole bins until no rank takes longer than `target` or nothing gains."""
    stale, num_ranks = 0, len(bins.key_D)
    for _ in range(MOST_ROUNDS):
        order_D = descending(bins.key_D)
        if bins.key_D[order_D[0]] <= target or stale == MOST_STALE:
            break
        has_gained = False
        for k in range(num_ranks // 2):
            slow = order_D[k]
            if bins.key_D[slow] <= target:
                break
            fast = partner(order_D, k, stale)
            has_gained = swap_best(bins, slow, fast) or has_gained
        stale = 0 if has_gained else stale + 1


@compiled
def level_by_pieces(bins: Bins, pieces: Pieces, target: float) -> None:
    """As `level_by_bins`; where no bin helps, pieces move or are exchanged for several of another bin."""
    stale, num_ranks = 0, len(bins.key_D)
    for _ in range(MOST_ROUNDS):
        order_D = descending(bins.key_D)
        if bins.key_D[order_D[0]] <= target or stale == MOST_STALE or bins.offers_left[0] <= 0:
            break
        has_gained = False
        for k in range(num_ranks // 2):
            slow = order_D[k]
            if bins.key_D[slow] <= target:
                break
            for turn in range(PARTNERS):
                fast = partner(order_D, k, stale * PARTNERS + turn)
                has_gained = meet(bins, pieces, slow, fast, target) or has_gained
        stale = 0 if has_gained else stale + 1


@compiled
def meet(bins: Bins, pieces: Pieces, slow: int, fast: int, target: float) -> bool:
    """Let two ranks exchange what gains most, again and again; whether anything did."""
    has_gained = False
    for _ in range(MOST_EXCHANGES):
        if bins.key_D[slow] <= target:
            break
        if not (
            swap_best(bins, slow, fast) or move_best(bins, pieces, slow, fast) or trade_best(bins, pieces, slow, fast)
        ):
            break
        has_gained = True
    return has_gained


@compiled
def partner(order_D: np.ndarray, k: int, stale: int) -> int:
    """The fast rank that the k-th slowest meets: the k-th fastest, another one each time that nothing gained."""
    half = len(order_D) // 2
    return int(order_D[len(order_D) - 1 - (k + stale) % half])


@compiled
def swap_best(bins: Bins, slow: int, fast: int) -> bool:
    """Swap the two bins that make the later of the two ranks earliest; whether any did."""
    per_rank = bins.limits.per_rank
    best = bins.key_D[slow] - LEAST_GAIN * bins.limits.mean
    best_x, best_y = -1, -1
    for x in range(per_rank):
        a = bins.bins_DM[slow, x]
        for y in range(per_rank):
            b = bins.bins_DM[fast, y]
            if bins.cost_B[a] <= bins.cost_B[b]:
                continue
            later = max(time_with(bins, slow, a, bins.cost_B[b]), time_with(bins, fast, b, bins.cost_B[a]))
            if later < best:
                best, best_x, best_y = later, x, y
    if best_x < 0:
        return False
    a, b = bins.bins_DM[slow, best_x], bins.bins_DM[fast, best_y]
    bins.bins_DM[slow, best_x], bins.bins_DM[fast, best_y] = b, a
    bins.rank_B[a], bins.rank_B[b] = fast, slow
    recount(bins, slow)
    recount(bins, fast)
    return True
