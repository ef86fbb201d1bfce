"""From a graph to the balance kernel and back: groups, layouts, mixed devices.

# N = pieces, B = bins, D = dp ranks, K = consumers, M = bins of a rank
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from loadmaster_flight.spec import Layout

from .balance import balance, balance_padded
from .place_tree import Float64Array
from .rows import Int64Array

if TYPE_CHECKING:
    from .dgraph import DGraph


def by_piece(graph: DGraph, cost_N: Int64Array) -> tuple[Int64Array, str]:
    """Place the text piece by piece: the bin of each, int64 (N,), and how that was done."""
    nodes, shape, num_ranks = graph.nodes, graph.shape, graph.tree.size("dp")
    if shape.layout is Layout.PAD:
        return _padded(graph, cost_N), "padded"
    found = balance(
        nodes.size_N,
        cost_N,
        nodes.packed_N,
        num_ranks=num_ranks,
        per_rank=graph.bins_per_rank,
        capacity=shape.capacity // shape.align,
        pp=graph.tree.size("pp"),
        group_size=graph.group_size,
        speed_D=graph.tree.speeds("dp"),
    )
    return found.bin_N, found.method


def _padded(graph: DGraph, cost_N: Int64Array) -> Int64Array:
    speed_D, per_rank, pp = graph.tree.speeds("dp"), graph.bins_per_rank, graph.tree.size("pp")
    bin_N = np.empty(len(cost_N), np.int64)
    for first, size in _groups(graph):
        at_N = np.flatnonzero(graph.nodes.packed_N // (size * per_rank) == first // size)
        speeds = speed_D[first : first + size]
        found = balance_padded(cost_N[at_N], num_ranks=size, per_rank=per_rank, pp=pp, speed_D=speeds)
        bin_N[at_N] = found.bin_N + first * per_rank
    return bin_N


def _groups(graph: DGraph) -> Iterator[tuple[int, int]]:
    """First rank and size of each group of dp ranks."""
    num_ranks = graph.tree.size("dp")
    size = graph.group_size or num_ranks
    yield from ((first, size) for first in range(0, num_ranks, size))


def whole_bins(graph: DGraph, cost_N: Int64Array) -> tuple[Int64Array, str]:
    """Place the packed bins as they are; a rank keeps their order. The final bin of each piece, int64 (N,)."""
    per_rank, speed_D = graph.bins_per_rank, graph.tree.speeds("dp")
    cost_B = np.bincount(graph.nodes.packed_N, weights=cost_N, minlength=graph.num_bins).astype(np.int64)
    rank_B = np.empty(graph.num_bins, np.int64)
    for first, size in _groups(graph):
        bins = slice(first * per_rank, (first + size) * per_rank)
        rank_B[bins] = first + lightest_first(cost_B[bins], speed_D[first : first + size], room=per_rank)
    new_B = np.empty(graph.num_bins, np.int64)
    new_B[np.argsort(rank_B, kind="stable")] = np.arange(graph.num_bins)
    return new_B[graph.nodes.packed_N], "bins"


def aligned_bins(cost_B: Int64Array, per_rank: int, pp: int) -> Int64Array:
    """New number of each bin, int64 (B,): every rank's bins in the same order of cost.

    The k-th costliest of each rank get the same index; that order minimises the sum over the indexes of the costliest
    one. Descending; with pipeline stages small at both ends and large in the middle, so that the bubble stays small.
    """
    order_DM = np.argsort(-cost_B.reshape(-1, per_rank), axis=1, kind="stable")
    slot_M = _mountain(per_rank) if pp > 1 else np.arange(per_rank)
    new_DM = np.empty_like(order_DM)
    np.put_along_axis(new_DM, order_DM, np.broadcast_to(slot_M, order_DM.shape), axis=1)
    return np.asarray((new_DM + np.arange(len(new_DM))[:, None] * per_rank).reshape(-1), np.int64)


def _mountain(num: int) -> Int64Array:
    """Slot of the k-th largest: the middle first, then to both sides in turn. int64 (M,)."""
    middle_out = sorted(range(num), key=lambda slot: (abs(2 * slot - num + 1), slot))
    return np.array(middle_out, np.int64)


def lightest_each(cost_N: Int64Array, index_N: Int64Array, speed_K: Float64Array) -> Int64Array:
    """`lightest_first` for each index by itself, int64 (N,).

    So that the sum over the indexes is even, too, consumers of one speed exchange what they got of an index: who has
    least of the earlier ones takes most.
    """
    place_N, sum_K = np.empty(len(cost_N), np.int64), np.zeros(len(speed_K))
    for index in np.unique(index_N).tolist():
        at = np.flatnonzero(index_N == index)
        share_N = lightest_first(cost_N[at], speed_K)
        load_K = np.bincount(share_N, weights=cost_N[at], minlength=len(speed_K))
        taker_K = np.empty(len(speed_K), np.int64)
        for speed in np.unique(speed_K):
            alike = np.flatnonzero(speed_K == speed)
            most_first, least_first = (np.argsort(key[alike], kind="stable") for key in (-load_K, sum_K))
            taker_K[alike[most_first]] = alike[least_first]
        place_N[at] = taker_K[share_N]
        sum_K[taker_K] += load_K
    return place_N


def lightest_first(cost_N: Int64Array, speed_K: Float64Array, room: int | None = None) -> Int64Array:
    """The costliest to the consumer whose work so far takes least time; ties to the lower index. int64 (N,).

    Args:
        room: How many a consumer takes at most.
    """
    heap, slowness = [(0.0, k) for k in range(len(speed_K))], (1.0 / speed_K).tolist()
    heapify(heap)
    room_K = [len(cost_N) if room is None else room] * len(speed_K)
    place_N, costs = np.empty(len(cost_N), np.int64), cost_N.tolist()
    for i in np.argsort(-cost_N, kind="stable").tolist():
        time, k = heappop(heap)
        place_N[i] = k
        room_K[k] -= 1
        if room_K[k]:
            heappush(heap, (time + costs[i] * slowness[k], k))
    return place_N
