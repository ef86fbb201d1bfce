"""Filling the room that best fit leaves, by exchanging placed pieces for waiting ones.

Best fit leaves room in every bin where pieces are few and long: with Pareto lengths and 8 bins of 8k 1-2 % of a step.

# N = pieces, W = waiting pieces, B = bins
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .columns import Int64Array

MOST_WAITING = 64
MOST_PLACED = 64
MOST_BINS = 128


def exchange(
    size_N: Int64Array, bin_N: Int64Array, may_wait_N: npt.NDArray[np.bool_], capacity: int, num_bins: int, goal: int
) -> None:
    """Choose anew what lies in a bin, from the roomiest on, until the bins hold `goal` or nothing gains.

    Of a bin's pieces that may wait and those that wait already it gets the set that fills it best (subset sum).
    Deterministic; ties go to the bin's own pieces, the longer ones first, and to the lower bin.

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
    """Choose anew, in bin `b`, among its own pieces and those that wait; returns the gain, 0 when there is none."""
    placed = _longest(np.flatnonzero((bin_N == b) & may_wait_N), size_N, MOST_PLACED)
    waiting = _longest(np.flatnonzero(bin_N < 0), size_N, MOST_WAITING)
    pieces = np.array(placed + waiting, np.int64)
    sums, placed_size = _sums(size_N[pieces].tolist()), int(size_N[placed].sum())
    best = _best_sum(sums[-1], free + placed_size)
    if best > placed_size:
        bin_N[placed] = -1
        bin_N[pieces[list(_members(sums, size_N[pieces].tolist(), best))]] = b
    return best - placed_size


def _longest(pieces: Int64Array, size_N: Int64Array, most: int) -> list[int]:
    order = np.argsort(-size_N[pieces], kind="stable")[:most]
    chosen: list[int] = pieces[order].tolist()
    return chosen


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
