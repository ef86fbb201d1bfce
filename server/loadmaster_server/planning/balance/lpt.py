"""Two-level LPT: the costliest piece to the rank that is done first, there into the lightest bin with room.

# N = pieces, B = bins (rank * M + m), D = ranks, M = bins of a rank, C = room of a bin
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .limits import Limits
from .sorting import KEY_LIMIT, RANK_BITS, sift_down, sift_up

MOST_LEFT = 0.05


@compiled
def place_by_cost(
    size_N: Int64Array, cost_N: Float64Array, order_N: Int64Array, slow_D: Float64Array, limits: Limits
) -> Int64Array:
    """Bin of each piece, int64 (N,), -1 where it found no room; empty where too many did not.

    A rank with no room for a piece leaves the heap and waits, in a list of the ranks whose roomiest bin has as much
    room, for smaller ones. All in one function: numba counts references to the arrays at every call, which would take
    longer than the rest.

    Args:
        order_N: The costliest piece first.
    """
    num_ranks, per_rank, capacity, max_docs = len(slow_D), limits.per_rank, limits.capacity, limits.max_docs
    extra, mean, mask = limits.extra, limits.mean, (1 << RANK_BITS) - 1
    scale = KEY_LIMIT / ((1.0 + extra) * (cost_N.sum() + 1.0) * slow_D.max())
    room_B, docs_B = np.full(num_ranks * per_rank, capacity), np.zeros(num_ranks * per_rank, np.int64)
    cost_B, cost_D, top_D = np.zeros(num_ranks * per_rank), np.zeros(num_ranks), np.zeros(num_ranks)
    heap, entry_D = np.arange(num_ranks), np.arange(num_ranks)
    first_C, next_D = np.full(capacity + 1, -1, np.int64), np.empty(num_ranks, np.int64)
    bin_N = np.empty(len(size_N), np.int64)
    num, called, num_left, most_left = num_ranks, 0, 0, int(MOST_LEFT * len(size_N))
    for i in order_N:
        size, found = size_N[i], -1
        while called > size:  # ranks that have room again
            called -= 1
            rank = first_C[called]
            first_C[called] = -1
            while rank >= 0:
                heap[num] = entry_D[rank]
                sift_up(heap, num)
                num += 1
                rank = next_D[rank]
        while num > 0:
            rank, roomiest, least = heap[0] & mask, 0, np.inf
            for b in range(rank * per_rank, (rank + 1) * per_rank):
                roomiest = max(roomiest, room_B[b])
                if room_B[b] >= size and cost_B[b] < least:
                    found, least = b, cost_B[b]
            if found >= 0:
                break
            next_D[rank], first_C[roomiest] = first_C[roomiest], rank
            called = max(called, roomiest + 1)
            num -= 1
            heap[0] = heap[num]
            sift_down(heap, num, 0)
        bin_N[i] = found
        if found < 0:
            num_left += 1
            if num_left > most_left:
                return np.empty(0, np.int64)
            continue
        rank = found // per_rank
        docs_B[found] += 1
        room_B[found] = room_B[found] - size if docs_B[found] < max_docs else 0
        cost_B[found] += cost_N[i]
        cost_D[rank] += cost_N[i]
        top_D[rank] = max(top_D[rank], cost_B[found])
        time = (cost_D[rank] + extra * max(0.0, top_D[rank] - mean)) * slow_D[rank]
        entry_D[rank] = (int(time * scale) << RANK_BITS) | rank
        heap[0] = entry_D[rank]
        sift_down(heap, num, 0)
    return bin_N
