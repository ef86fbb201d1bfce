"""Two-level LPT: the costliest piece to the rank that is done first, there into the lightest bin with room.

# N = pieces, B = bins (rank * M + m), D = ranks, M = bins of a rank
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .limits import Limits
from .sorting import KEY_LIMIT, RANK_BITS, sift_down, sift_up

MOST_RANKS_TRIED = 16
MOST_LEFT = 0.05


@compiled
def place_by_cost(
    size_N: Int64Array, cost_N: Float64Array, order_N: Int64Array, slow_D: Float64Array, limits: Limits
) -> Int64Array:
    """Bin of each piece, int64 (N,), -1 where it found no room; empty where too many did not.

    Args:
        order_N: The costliest piece first.
    """
    num_ranks, per_rank = len(slow_D), limits.per_rank
    mask = (1 << RANK_BITS) - 1
    scale = KEY_LIMIT / ((1.0 + limits.extra) * (cost_N.sum() + 1.0) * slow_D.max())
    bin_N = np.empty(len(size_N), np.int64)
    used_B, docs_B = np.zeros(num_ranks * per_rank, np.int64), np.zeros(num_ranks * per_rank, np.int64)
    cost_B, cost_D, top_D = np.zeros(num_ranks * per_rank), np.zeros(num_ranks), np.zeros(num_ranks)
    heap, parked = np.arange(num_ranks), np.empty(MOST_RANKS_TRIED, np.int64)
    num, num_left, most_left = num_ranks, 0, int(MOST_LEFT * len(size_N))
    for i in order_N:
        num_parked, b, rank = 0, -1, 0
        while num > 0 and num_parked < MOST_RANKS_TRIED:
            rank = heap[0] & mask
            b = lightest_with_room(used_B, docs_B, cost_B, rank * per_rank, size_N[i], limits)
            if b >= 0:
                break
            parked[num_parked] = heap[0]
            num_parked += 1
            num -= 1
            heap[0] = heap[num]
            sift_down(heap, num, 0)
        bin_N[i] = b
        if b < 0:
            num_left += 1
            if num_left > most_left:
                return np.empty(0, np.int64)
            num = unpark(heap, num, parked, num_parked)
            continue
        used_B[b] += size_N[i]
        docs_B[b] += 1
        cost_B[b] += cost_N[i]
        cost_D[rank] += cost_N[i]
        top_D[rank] = max(top_D[rank], cost_B[b])
        key = (cost_D[rank] + limits.extra * max(0.0, top_D[rank] - limits.mean)) * slow_D[rank]
        heap[0] = (int(key * scale) << RANK_BITS) | rank
        sift_down(heap, num, 0)
        num = unpark(heap, num, parked, num_parked)
    return bin_N


@compiled
def unpark(heap: Int64Array, num: int, parked: Int64Array, num_parked: int) -> int:
    """Put the ranks that had no room for one piece back; returns the size of the heap."""
    for k in range(num_parked):
        heap[num] = parked[k]
        sift_up(heap, num)
        num += 1
    return num


@compiled
def lightest_with_room(
    used_B: Int64Array, docs_B: Int64Array, cost_B: Float64Array, first: int, size: int, limits: Limits
) -> int:
    """The bin of least cost among the rank's that takes `size` more, -1 if none does; ties to the lowest."""
    found = -1
    for b in range(first, first + limits.per_rank):
        has_room = used_B[b] + size <= limits.capacity and docs_B[b] < limits.max_docs
        if has_room and (found < 0 or cost_B[b] < cost_B[found]):
            found = b
    return found
