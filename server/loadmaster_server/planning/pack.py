"""Packing pieces into bins: best fit, in sequence, or one a row.

# N = pieces, B = bins
"""

from __future__ import annotations

import numpy as np

from loadmaster_flight.spec import Layout

from .best_fit import UNPLACED, best_fit
from .columns import Int64Array
from .exchange import exchange
from .ordering import stable_order
from .pieces import DRAWN_AT, PieceTable, part_of
from .rules import StepShape


def packing_order(size_N: Int64Array, drawn_at_N: Int64Array) -> Int64Array:
    """Oldest first; among those of an age the longest first, then as drawn. int64 (N,)."""
    return stable_order([drawn_at_N, -size_N])


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
    size_N, capacity = pieces.aligned_N(shape.align) // shape.align, shape.capacity // shape.align
    order_N = packing_order(size_N, pieces.values_NP[:, DRAWN_AT])
    bin_N = np.empty(len(pieces), np.int64)
    bin_N[order_N] = best_fit(size_N[order_N], shape.num_bins, capacity)
    may_wait_N = pieces.values_NP[:, DRAWN_AT] >= shape.step - shape.has_several_bins
    exchange(size_N, bin_N, may_wait_N, capacity, shape.num_bins, -(-shape.is_full_at // shape.align))
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
