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
    num_bins, capacity, b = len(pieces.used_B), bins.limits.capacity, 0
    for i in left:
        tries = 0
        while not has_room(bins, pieces, b, pieces.size_N[i]):
            b, tries = (b + 1) % num_bins, tries + 1
            if tries > num_bins + MOST_TARGETS:
                return False
            is_open = pieces.used_B[b] < capacity and pieces.docs_B[b] < bins.limits.max_docs
            if is_open or tries > num_bins:
                gather_room(bins, pieces, b, pieces.size_N[i])
                tries = max(tries, num_bins - MOST_TARGETS)
        put_piece(pieces, bins, i, b)
    return True


@compiled
def has_room(bins: Bins, pieces: Pieces, b: int, size: int) -> bool:
    """Whether a bin takes one more piece of this size."""
    return bool(pieces.used_B[b] + size <= bins.limits.capacity and pieces.docs_B[b] < bins.limits.max_docs)


@compiled
def gather_room(bins: Bins, pieces: Pieces, a: int, size: int) -> None:
    """Make room for `size` in bin `a` by swaps of pieces of nearly the same size with bins that have some."""
    num_bins, capacity = len(pieces.used_B), bins.limits.capacity
    b, since, swaps = a, 0, 0
    while capacity - pieces.used_B[a] < size and since < num_bins and swaps < MOST_SWAPS:
        b, since = (b + 1) % num_bins, since + 1
        if b == a or pieces.used_B[b] == capacity:
            continue
        swap = best_swap(bins, pieces, a, b, size - (capacity - pieces.used_B[a]))
        if swap.gain > 0:
            move_piece(pieces, bins, swap.out, b)
            if swap.back >= 0:
                move_piece(pieces, bins, swap.back, a)
            since, swaps = 0, swaps + 1


@compiled
def best_swap(bins: Bins, pieces: Pieces, a: int, b: int, wanted: int) -> Swap:
    """The swap of a piece of `a` for none or one of `b` that gains most room in `a`, at most what `b` has."""
    free = bins.limits.capacity - pieces.used_B[b]
    best, enough = Swap(-1, -1, 0), min(free, wanted)
    i, j = pieces.first_B[a], pieces.first_B[b]
    while i >= 0 and best.gain < enough:
        while j >= 0 and pieces.size_N[j] >= pieces.size_N[i]:
            j = pieces.next_N[j]
        # j is the largest piece of b that is smaller than i; those after it gain more, as long as b has the room
        k, gain = j, 0
        while k >= 0 and pieces.size_N[i] - pieces.size_N[k] <= free:
            gain = pieces.size_N[i] - pieces.size_N[k]
            if gain > best.gain:
                best = Swap(i, k, gain)
            k = pieces.next_N[k]
        if pieces.size_N[i] <= free and pieces.size_N[i] > best.gain and pieces.docs_B[b] < bins.limits.max_docs:
            best = Swap(i, -1, pieces.size_N[i])
        i = pieces.next_N[i]
    return best
