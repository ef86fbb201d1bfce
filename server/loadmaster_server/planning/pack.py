"""Packing pieces into bins: best fit, in sequence, or one a row.

# N = pieces, B = bins
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from loadmaster_flight.spec import Layout

from .exchange import exchange
from .pieces import DRAWN_AT, PieceTable, part_of
from .rows import Int64Array
from .rules import StepShape

UNPLACED = -1


def best_fit(size_N: Sequence[int], num_bins: int, capacity: int) -> list[int]:
    """Put each piece, in the order given, into the fullest bin that has room; ties go to the lowest bin.

    Args:
        size_N: Size of each piece, >= 1, in the unit of `capacity`.

    Returns:
        Bin of each piece, UNPLACED where none has room. O(N log N) on the distinct free sizes.
    """
    free_sizes = [capacity]  # ascending, each with the heap of its bins
    bins_of = {capacity: list(range(num_bins))}
    bin_N = []
    for size in size_N:
        at = bisect_left(free_sizes, size)
        if at == len(free_sizes):
            bin_N.append(UNPLACED)
            continue
        free = free_sizes[at]
        bins = bins_of[free]
        index = heappop(bins)
        bin_N.append(index)
        if not bins:
            del free_sizes[at], bins_of[free]
        if free > size:
            _give_back(free_sizes, bins_of, free - size, index)
    return bin_N


def _give_back(free_sizes: list[int], bins_of: dict[int, list[int]], free: int, index: int) -> None:
    if free in bins_of:
        heappush(bins_of[free], index)
    else:
        insort(free_sizes, free)
        bins_of[free] = [index]


def packing_order(pieces: PieceTable, align: int) -> Int64Array:
    """Oldest first; among those of an age the longest first, then as drawn. int64 (N,)."""
    return np.lexsort((-pieces.aligned_N(align), pieces.values_NP[:, DRAWN_AT])).astype(np.int64)


def pack(pieces: PieceTable, shape: StepShape) -> tuple[PieceTable, Int64Array]:
    """Place queue and draw (in this order) by the layout's rule.

    Returns:
        The pieces, possibly cut, in their order, and the bin of each, UNPLACED for those that must wait.
    """
    if shape.layout is Layout.CONCAT:
        return _in_sequence(pieces, shape)
    if shape.layout is Layout.PAD:
        bin_N = np.arange(len(pieces)) // shape.rows
        return pieces, np.where(bin_N < shape.num_bins, bin_N, UNPLACED)
    order_N = packing_order(pieces, shape.align)
    bin_N = np.empty(len(pieces), np.int64)
    size_N, capacity = pieces.aligned_N(shape.align) // shape.align, shape.capacity // shape.align
    bin_N[order_N] = best_fit(size_N[order_N].tolist(), shape.num_bins, capacity)
    is_fresh_N = pieces.values_NP[:, DRAWN_AT] == shape.step
    exchange(size_N, bin_N, is_fresh_N, capacity, shape.num_bins, -(-shape.is_full_at // shape.align))
    return pieces, bin_N


def _in_sequence(pieces: PieceTable, shape: StepShape) -> tuple[PieceTable, Int64Array]:
    """Lay the pieces end to end and cut where a bin ends (bins end at multiples of align, so cuts do)."""
    aligned_N = pieces.aligned_N(shape.align)
    end_N = np.cumsum(aligned_N)
    bin_end_B = np.arange(1, shape.num_bins + 1) * shape.capacity
    total = int(end_N[-1]) if len(pieces) else 0
    stop_N = np.unique(np.concatenate([end_N, bin_end_B[bin_end_B < total]]))
    start_N = np.append(0, stop_N[:-1])[: len(stop_N)]
    index_N = np.searchsorted(end_N, start_N, side="right")
    offset_N = start_N - (end_N - aligned_N)[index_N]
    tokens_N = np.minimum(stop_N - start_N, pieces.tokens_N[index_N] - offset_N)
    bin_N = start_N // shape.capacity
    return part_of(pieces, index_N, offset_N, tokens_N), np.where(bin_N < shape.num_bins, bin_N, UNPLACED)
