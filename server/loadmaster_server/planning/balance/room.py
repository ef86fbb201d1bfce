"""Places for the last pieces of LPT: room that is spread over many bins is gathered in one.

# N = pieces, B = bins
"""

from __future__ import annotations

from typing import NamedTuple

from ..compiled import compiled
from ..cost import Int64Array
from .board import Bins, Pieces, move_piece, put_piece

MOST_SWAPS = 4096
MOST_TARGETS = 64
MOST_MISSES = 16


class Swap(NamedTuple):
    """A piece that leaves a bin, the one that comes for it (-1: none), and the room that this gains."""

    out: int
    back: int
    gain: int


@compiled
def place_left(bins: Bins, pieces: Pieces, left: Int64Array) -> bool:
    """Place the pieces `left`, the largest first; whether all of them found a place.

    Costs of ranks are not kept up to date.
    """
    num_bins, b = len(pieces.used_B), 0
    for i in left:
        b = bin_for(bins, pieces, b, pieces.size_N[i], MOST_MISSES)
        if not has_room(bins, pieces, b, pieces.size_N[i]):
            b = bin_for(bins, pieces, b, pieces.size_N[i], num_bins)
        if not has_room(bins, pieces, b, pieces.size_N[i]):
            return False
        put_piece(pieces, bins, i, b)
    return True


@compiled
def bin_for(bins: Bins, pieces: Pieces, first: int, size: int, most_misses: int) -> int:
    """From bin `first` on the first one with room for `size`, gathered if need be; `first` if there is none.

    Room is gathered in bins that have some, in 64 of them; as a last resort, all others being looked at, in any.
    """
    used_B, docs_B, capacity, max_docs = pieces.used_B, pieces.docs_B, bins.limits.capacity, bins.limits.max_docs
    at, num_bins, num_tried = first, len(used_B), 0
    for _ in range(num_bins):
        is_open = used_B[at] < capacity and docs_B[at] < max_docs
        if is_open and used_B[at] + size <= capacity:
            return at
        if num_tried < MOST_TARGETS and (is_open or most_misses >= num_bins):
            num_tried += 1
            gather_room(bins, pieces, at, size, most_misses)
            if has_room(bins, pieces, at, size):
                return at
        at = at + 1 if at + 1 < num_bins else 0
    return first


@compiled
def has_room(bins: Bins, pieces: Pieces, b: int, size: int) -> bool:
    """Whether a bin takes one more piece of this size."""
    return bool(pieces.used_B[b] + size <= bins.limits.capacity and pieces.docs_B[b] < bins.limits.max_docs)


@compiled
def gather_room(bins: Bins, pieces: Pieces, a: int, size: int, most_misses: int) -> None:
    """Make room for `size` in bin `a` by swaps of pieces of nearly the same size with bins that have some.

    Bins of pieces that are all alike have little to swap: after `most_misses` others in vain it is given up.
    """
    used_B, num_bins, capacity = pieces.used_B, len(pieces.used_B), bins.limits.capacity
    b, since, swaps, misses = a, 0, 0, 0
    while capacity - used_B[a] < size and since < num_bins and swaps < MOST_SWAPS and misses < most_misses:
        b, since = b + 1 if b + 1 < num_bins else 0, since + 1
        if b == a or used_B[b] == capacity:
            continue
        swap = best_swap(bins, pieces, a, b, size - (capacity - used_B[a]))
        if swap.gain > 0:
            move_piece(pieces, bins, swap.out, b)
            if swap.back >= 0:
                move_piece(pieces, bins, swap.back, a)
            since, swaps, misses = 0, swaps + 1, 0
        else:
            misses += 1


@compiled
def best_swap(bins: Bins, pieces: Pieces, a: int, b: int, wanted: int) -> Swap:
    """The swap of a piece of `a` for none or one of `b` that gains most room in `a`, at most what `b` has."""
    size_N, next_N = pieces.size_N, pieces.next_N
    free, takes_more = bins.limits.capacity - pieces.used_B[b], pieces.docs_B[b] < bins.limits.max_docs
    out, back, best, enough = -1, -1, 0, min(free, wanted)
    i, j = pieces.first_B[a], pieces.first_B[b]
    while i >= 0 and best < enough:
        size = size_N[i]
        while j >= 0 and size_N[j] >= size:
            j = next_N[j]
        # j is the largest piece of b that is smaller than i; those after it gain more, as long as b has the room
        k = j
        while k >= 0 and size - size_N[k] <= free:
            if size - size_N[k] > best:
                out, back, best = i, k, size - size_N[k]
            k = next_N[k]
        if best < size <= free and takes_more:
            out, back, best = i, -1, size
        i = next_N[i]
        while i >= 0 and size_N[i] == size:  # no other swap than the one before
            i = next_N[i]
    return Swap(out, back, best)
