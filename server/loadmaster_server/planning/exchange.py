"""Filling the room that best fit leaves, by exchanging placed pieces for waiting ones.

Best fit leaves room in every bin where pieces are few and long: with Pareto lengths and 8 bins of 8k 1-2 % of a step.

# N = pieces, W = waiting pieces, B = bins
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from .columns import Int64Array

MOST_WAITING = 64
MOST_PLACED = 12
MOST_BINS = 128


def exchange(
    size_N: Int64Array, bin_N: Int64Array, may_wait_N: npt.NDArray[np.bool_], capacity: int, num_bins: int, goal: int
) -> None:
    """Exchange, bin by bin from the roomiest, what gains most, until the bins hold `goal` or nothing gains.

    Up to two pieces of a bin give way to the waiting ones that fill its room best (subset sum). Deterministic; ties go
    to the earlier pieces and the lower bin.

    Args:
        size_N: Shape (N,), int64, pieces in units of the alignment, >= 1.
        bin_N: Shape (N,), int64, bin of each piece, -1 where it waits. Changed in place.
        may_wait_N: Shape (N,), pieces that may lose their place.
        capacity: Room of a bin, and `goal` the sum over all bins, in the same units.
    """
    free_B = np.full(num_bins, capacity, np.int64)
    np.subtract.at(free_B, bin_N[bin_N >= 0], size_N[bin_N >= 0])
    lacking = goal - (num_bins * capacity - int(free_B.sum()))
    for b in np.argsort(-free_B, kind="stable")[:MOST_BINS].tolist():
        if lacking <= 0 or free_B[b] == 0:
            return
        lacking -= _refill(b, int(free_B[b]), size_N, bin_N, may_wait_N)


def _refill(b: int, free: int, size_N: Int64Array, bin_N: Int64Array, may_wait_N: npt.NDArray[np.bool_]) -> int:
    """Do the best exchange in bin `b`; returns its gain, 0 when there is none."""
    waiting = _longest(np.flatnonzero(bin_N < 0), size_N, MOST_WAITING)
    placed = _longest(np.flatnonzero((bin_N == b) & may_wait_N), size_N, MOST_PLACED)
    sums = _sums(size_N[waiting].tolist())
    best_gain, best_given = 0, tuple[int, ...]()
    for given, size in _bundles(placed, size_N):
        gain = _best_sum(sums[-1], free + size) - size
        if gain > best_gain:
            best_gain, best_given = gain, given
    if best_gain:
        room = best_gain + int(size_N[list(best_given)].sum())
        bin_N[list(best_given)] = -1
        bin_N[[waiting[i] for i in _members(sums, size_N[waiting].tolist(), room)]] = b
    return best_gain


def _longest(pieces: Int64Array, size_N: Int64Array, most: int) -> list[int]:
    order = np.argsort(-size_N[pieces], kind="stable")[:most]
    chosen: list[int] = pieces[order].tolist()
    return chosen


def _bundles(placed: Sequence[int], size_N: Int64Array) -> Iterator[tuple[tuple[int, ...], int]]:
    """No piece, every one, every two, with their size."""
    for count in range(3):
        for given in combinations(placed, count):
            yield given, sum(int(size_N[piece]) for piece in given)


def _sums(size_W: Sequence[int]) -> list[int]:
    """Bit k of entry i is set when some of the first i sizes sum to k."""
    sums = [1]
    for size in size_W:
        sums.append(sums[-1] | sums[-1] << size)
    return sums


def _best_sum(sums: int, room: int) -> int:
    """The largest sum <= room."""
    return (sums & ((1 << (room + 1)) - 1)).bit_length() - 1


def _members(sums: Sequence[int], size_W: Sequence[int], total: int) -> Iterator[int]:
    """Which sizes make up `total`, the later ones only where they must."""
    for i in reversed(range(len(size_W))):
        if not sums[i] >> total & 1:
            yield i
            total -= size_W[i]
