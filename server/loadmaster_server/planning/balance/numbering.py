"""Final numbers of bins: no slot left empty, and the order in which a rank runs its microbatches.

# N = pieces, B = bins, D = ranks, M = bins of a rank
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..cost import Int64Array
from .board import Bins, Pieces, move_piece, recount


@compiled
def fill_empty(bins: Bins, pieces: Pieces) -> None:
    """Give every empty bin the smallest piece of the costliest bin of two and more: of its rank, or else of any."""
    for b in range(len(bins.cost_B)):
        if pieces.docs_B[b]:
            continue
        rank = bins.rank_B[b]
        donor = costliest_of_two(bins, pieces, bins.bins_DM[rank])
        if donor < 0:
            donor = costliest_of_two(bins, pieces, np.arange(len(bins.cost_B)))
        if donor < 0:
            return
        move_piece(pieces, bins, last_of(pieces, donor), b)
        recount(bins, bins.rank_B[donor])
        recount(bins, rank)


@compiled
def costliest_of_two(bins: Bins, pieces: Pieces, candidates: Int64Array) -> int:
    """The costliest of these bins that can give a piece away; -1 if none can."""
    found = -1
    for b in candidates:
        if pieces.docs_B[b] > 1 and (found < 0 or bins.cost_B[b] > bins.cost_B[found]):
            found = b
    return found


@compiled
def last_of(pieces: Pieces, b: int) -> int:
    """Smallest piece of a bin."""
    i: int = pieces.first_B[b]
    while pieces.next_N[i] >= 0:
        i = pieces.next_N[i]
    return i


@compiled
def slots(bins: Bins) -> Int64Array:
    """Number rank * M + m of each bin, int64 (B,).

    In a pipeline (extra > 0) a rank's cheap microbatches come first and last, the costly ones in the middle: the
    pipeline fills and drains on them. Otherwise the order is the bins' own.
    """
    num_ranks, per_rank = bins.bins_DM.shape
    slot_B = np.empty(len(bins.cost_B), np.int64)
    for rank in range(num_ranks):
        row = np.sort(bins.bins_DM[rank])
        if bins.limits.extra > 0:
            row = by_cost(bins, row)
        for k in range(per_rank):
            at = k if bins.limits.extra == 0 else (k >> 1 if k % 2 == 0 else per_rank - 1 - (k >> 1))
            slot_B[row[k]] = rank * per_rank + at
    return slot_B


@compiled
def by_cost(bins: Bins, row: Int64Array) -> Int64Array:
    """These few bins, the cheapest first, ties as they are."""
    for k in range(1, len(row)):
        b, at = row[k], k
        while at > 0 and bins.cost_B[row[at - 1]] > bins.cost_B[b]:
            row[at] = row[at - 1]
            at -= 1
        row[at] = b
    return row
