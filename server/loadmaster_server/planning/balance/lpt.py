"""Two-level LPT: the costliest piece to the rank that will be done first, there into the bin that will be cheapest.

What a bin will cost is what its pieces cost, and for its room what the pieces not yet placed cost on average per unit
of all the room that is left. Near full every bin ends up full: a bin with a long piece is no better off for the short
ones that it has not got yet, and by the cost so far alone it would get all its share of them at the end, on top.

# N = pieces, B = bins (rank * M + m), D = ranks, M = bins of a rank, C = room of a bin
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .limits import Limits
from .sorting import KEY_LIMIT, RANK_BITS, sift_down, sift_up

MOST_LEFT = 0.05
RATE_BITS = 6
"""The cost of room is a multiple of a power of two, 2**-6 to 2**-7 of what it is at first: few changes, exact sums."""


class Forecast(NamedTuple):
    """What bins and ranks will cost; changed in place.

    Attributes:
        room_B: Room that each bin has left.
        cost_B: What each bin will cost, `cost_D` each rank, `top_D` the costliest bin of each rank.
        entry_D: Entry of each rank in the heap: its time, and in the low bits its number.
    """

    room_B: Int64Array
    cost_B: Float64Array
    cost_D: Float64Array
    top_D: Float64Array
    entry_D: Int64Array


@compiled
def place_by_cost(
    size_N: Int64Array, cost_N: Float64Array, order_N: Int64Array, slow_D: Float64Array, limits: Limits
) -> Int64Array:
    """Bin of each piece, int64 (N,), -1 where it found no room; empty where too many did not.

    A rank with no room for a piece leaves the heap and waits, in a list of the ranks whose roomiest bin has as much
    room, for smaller ones. All in one function: numba counts references to the arrays at every call, which would take
    longer than the rest. Pieces are put in order first: looked up one at a time, a million of them take twice as long.

    Args:
        order_N: The costliest piece first.
    """
    num_ranks, per_rank, capacity, max_docs = len(slow_D), limits.per_rank, limits.capacity, limits.max_docs
    extra, mean, mask = limits.extra, limits.mean, (1 << RANK_BITS) - 1
    cost_left, room_left = cost_N.sum(), num_ranks * per_rank * capacity
    scale = KEY_LIMIT / ((1.0 + extra) * (cost_left + 1.0) * slow_D.max())
    room_B, docs_B = np.full(num_ranks * per_rank, capacity), np.zeros(num_ranks * per_rank, np.int64)
    cost_B, cost_D, top_D = np.zeros(num_ranks * per_rank), np.zeros(num_ranks), np.zeros(num_ranks)
    heap, entry_D = np.arange(num_ranks), np.arange(num_ranks)
    first_C, next_D = np.full(capacity + 1, -1, np.int64), np.empty(num_ranks, np.int64)
    rate, quantum = 0.0, quantum_of(cost_left / room_left)
    sizes, costs, found_N = size_N[order_N], cost_N[order_N], np.empty(len(order_N), np.int64)
    num, called, num_left, most_left = num_ranks, 0, 0, int(MOST_LEFT * len(size_N))
    for at in range(len(order_N)):
        size, cost, found = sizes[at], costs[at], -1
        if at == 0 or cost_left < rate * room_left:
            new = math.floor(cost_left / room_left / quantum) * quantum
            forecast = Forecast(room_B, cost_B, cost_D, top_D, entry_D)
            reprice(forecast, heap[:num], new - rate, slow_D, limits, scale)
            rate = new
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
            rank, least = heap[0] & mask, np.inf
            for b in range(rank * per_rank, (rank + 1) * per_rank):
                if room_B[b] >= size and cost_B[b] < least:
                    found, least = b, cost_B[b]
            if found >= 0:
                break
            roomiest = room_B[rank * per_rank : (rank + 1) * per_rank].max()
            next_D[rank], first_C[roomiest] = first_C[roomiest], rank
            called = max(called, roomiest + 1)
            num -= 1
            heap[0] = heap[num]
            sift_down(heap, num, 0)
        found_N[at] = found
        cost_left -= cost
        if found < 0:
            num_left += 1
            if num_left > most_left:
                return np.empty(0, np.int64)
            continue
        rank = found // per_rank
        docs_B[found] += 1
        taken = size if docs_B[found] < max_docs else room_B[found]
        room_B[found] -= taken
        room_left -= taken
        cost_B[found] += cost - rate * taken
        cost_D[rank] += cost - rate * taken
        top_D[rank] = max(top_D[rank], cost_B[found])
        time = (cost_D[rank] + extra * max(0.0, top_D[rank] - mean)) * slow_D[rank]
        entry_D[rank] = (int(time * scale) << RANK_BITS) | rank
        heap[0] = entry_D[rank]
        sift_down(heap, num, 0)
    bin_N = np.empty(len(order_N), np.int64)
    bin_N[order_N] = found_N
    return bin_N


@compiled
def quantum_of(rate: float) -> float:
    """The power of two that costs of room are multiples of."""
    return math.ldexp(1.0, math.frexp(rate)[1] - 1 - RATE_BITS)


@compiled
def reprice(
    forecast: Forecast, heap: Int64Array, change: float, slow_D: Float64Array, limits: Limits, scale: float
) -> None:
    """Let a unit of room cost `change` more, and put the heap in order again."""
    per_rank, mask = limits.per_rank, (1 << RANK_BITS) - 1
    for rank in range(len(slow_D)):
        cost, top = 0.0, 0.0
        for b in range(rank * per_rank, (rank + 1) * per_rank):
            forecast.cost_B[b] += change * forecast.room_B[b]
            cost += forecast.cost_B[b]
            top = max(top, forecast.cost_B[b])
        forecast.cost_D[rank], forecast.top_D[rank] = cost, top
        time = (cost + limits.extra * max(0.0, top - limits.mean)) * slow_D[rank]
        forecast.entry_D[rank] = (int(time * scale) << RANK_BITS) | rank
    for k in range(len(heap)):
        heap[k] = forecast.entry_D[heap[k] & mask]
    for k in range(len(heap) // 2 - 1, -1, -1):
        sift_down(heap, len(heap), k)
