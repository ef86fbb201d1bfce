"""A placement under repair: bins in ranks, and the pieces of each bin in a list, the largest first.

# N = pieces, B = bins, D = ranks, M = bins of a rank
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .limits import Limits
from .sorting import DIGIT_BITS, DIGITS, by_digit


class Bins(NamedTuple):
    """Bins and the ranks that they are in; changed in place.

    Attributes:
        bins_DM: Bins of each rank.
        rank_B: Rank of each bin.
        cost_B: Cost of each bin.
        cost_D: Cost of each rank.
        slow_D: Time that a rank takes for a unit of cost.
        key_D: Time of each rank: of its bins, and `extra` times what its costliest bin is above the mean.
        limits: Caps.
        offers_left: Shape (1,): exchanges that repair may still look at, so that its work is bounded.
    """

    bins_DM: Int64Array
    rank_B: Int64Array
    cost_B: Float64Array
    cost_D: Float64Array
    slow_D: Float64Array
    key_D: Float64Array
    limits: Limits
    offers_left: Int64Array


class Pieces(NamedTuple):
    """Pieces of the bins as linked lists; changed in place.

    Attributes:
        size_N: Sizes, `cost_N` costs, `bin_N` bins.
        next_N: The next piece of the same bin, smaller or as large, -1 at the end; `prev_N` the one before.
        first_B: Largest piece of each bin, -1 if it is empty.
        used_B: Sum of sizes, `docs_B` number of pieces of each bin.
    """

    size_N: Int64Array
    cost_N: Float64Array
    bin_N: Int64Array
    next_N: Int64Array
    prev_N: Int64Array
    first_B: Int64Array
    used_B: Int64Array
    docs_B: Int64Array


@compiled
def sums_by_bin(cost_N: Float64Array, bin_N: Int64Array, num_bins: int) -> Float64Array:
    """Cost of each bin, float64 (B,), exact because costs are integers."""
    cost_B = np.zeros(num_bins)
    for i in range(len(bin_N)):
        if bin_N[i] >= 0:
            cost_B[bin_N[i]] += cost_N[i]
    return cost_B


@compiled
def bins_of(bins_DM: Int64Array, cost_B: Float64Array, slow_D: Float64Array, limits: Limits) -> Bins:
    """The ranks made up of these bins."""
    num_ranks = len(slow_D)
    rank_B = np.empty(len(cost_B), np.int64)
    left = np.zeros(1, np.int64)
    bins = Bins(bins_DM, rank_B, cost_B, np.zeros(num_ranks), slow_D, np.zeros(num_ranks), limits, left)
    for rank in range(num_ranks):
        for b in bins_DM[rank]:
            rank_B[b] = rank
        recount(bins, rank)
    return bins


@compiled
def recount(bins: Bins, rank: int) -> None:
    """Set cost and time of a rank from its bins."""
    cost, top = 0.0, 0.0
    for b in bins.bins_DM[rank]:
        cost += bins.cost_B[b]
        top = max(top, bins.cost_B[b])
    bins.cost_D[rank] = cost
    bins.key_D[rank] = time_of(bins, rank, cost, top)


@compiled
def time_of(bins: Bins, rank: int, cost: float, top: float) -> float:
    """Time of a rank with this cost and this costliest bin."""
    time: float = (cost + bins.limits.extra * max(0.0, top - bins.limits.mean)) * bins.slow_D[rank]
    return time


@compiled
def time_with(bins: Bins, rank: int, without: int, instead: float) -> float:
    """Time of a rank if its bin `without` had the cost `instead`."""
    cost = bins.cost_D[rank] - bins.cost_B[without] + instead
    top = instead
    if bins.limits.extra > 0:
        for b in bins.bins_DM[rank]:
            if b != without:
                top = max(top, bins.cost_B[b])
    return time_of(bins, rank, cost, top)


@compiled
def pieces_of(size_N: Int64Array, cost_N: Float64Array, bin_N: Int64Array, num_bins: int) -> Pieces:
    """Lists of the bins' pieces, those of bin -1 left out. Not copied: `bin_N` will change."""
    num = len(size_N)
    pieces = Pieces(
        size_N,
        cost_N,
        bin_N,
        np.full(num, -1, np.int64),
        np.full(num, -1, np.int64),
        np.full(num_bins, -1, np.int64),
        np.zeros(num_bins, np.int64),
        np.zeros(num_bins, np.int64),
    )
    order_N = by_digit(size_N, np.arange(num - 1, -1, -1), 0)  # the largest piece, of those the first, comes last
    if num and size_N.max() >= DIGITS:
        order_N = by_digit(size_N, order_N, DIGIT_BITS)
        if size_N.max() >> 2 * DIGIT_BITS:
            order_N = by_digit(size_N, order_N, 2 * DIGIT_BITS)
    for i in order_N:
        if bin_N[i] >= 0:
            put_first(pieces, i)
    return pieces


@compiled
def put_first(pieces: Pieces, i: int) -> None:
    """Put a piece, none of its bin's being larger, at the head of the list of the bin that bin_N names."""
    b = pieces.bin_N[i]
    head = pieces.first_B[b]
    pieces.next_N[i] = head
    pieces.prev_N[i] = -1
    if head >= 0:
        pieces.prev_N[head] = i
    pieces.first_B[b] = i
    pieces.used_B[b] += pieces.size_N[i]
    pieces.docs_B[b] += 1


@compiled
def move_piece(pieces: Pieces, bins: Bins, i: int, to: int) -> None:
    """Take a piece out of its bin and put it, by its size, into another one."""
    unlink(pieces, bins, i)
    put_piece(pieces, bins, i, to)


@compiled
def put_piece(pieces: Pieces, bins: Bins, i: int, to: int) -> None:
    """Put a piece that is in no bin into one, by its size."""
    before, after = -1, pieces.first_B[to]
    size_N, next_N, size = pieces.size_N, pieces.next_N, pieces.size_N[i]
    while after >= 0 and (size_N[after] > size or (size_N[after] == size and after < i)):
        before, after = after, next_N[after]
    pieces.prev_N[i], pieces.next_N[i] = before, after
    if before >= 0:
        pieces.next_N[before] = i
    else:
        pieces.first_B[to] = i
    if after >= 0:
        pieces.prev_N[after] = i
    pieces.bin_N[i] = to
    pieces.used_B[to] += pieces.size_N[i]
    pieces.docs_B[to] += 1
    bins.cost_B[to] += pieces.cost_N[i]


@compiled
def unlink(pieces: Pieces, bins: Bins, i: int) -> None:
    """Take a piece out of its bin."""
    b, before, after = pieces.bin_N[i], pieces.prev_N[i], pieces.next_N[i]
    if before >= 0:
        pieces.next_N[before] = after
    else:
        pieces.first_B[b] = after
    if after >= 0:
        pieces.prev_N[after] = before
    pieces.used_B[b] -= pieces.size_N[i]
    pieces.docs_B[b] -= 1
    bins.cost_B[b] -= pieces.cost_N[i]
