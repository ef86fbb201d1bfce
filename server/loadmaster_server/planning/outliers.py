"""Outlier delay: long pieces wait until there is one for every microbatch, so that those of a step cost alike.

With pipeline stages a rank is as slow as its costliest microbatch, and one giant document makes every other
microbatch wait. Giants that come one for each microbatch cost no rank more than another.

# N = pieces
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .columns import Int64Array

MOST_HELD_STEPS = 2
"""Held tokens are at most this many steps' capacity; the oldest beyond it go on."""
_CLASSES = range(4, -1, -1)


def held_back(
    size_N: Int64Array, age_N: Int64Array, *, num_bins: int, capacity: int, max_age: int
) -> npt.NDArray[np.bool_]:
    """Which pieces must wait, bool (N,); a pure function of sizes, ages and order.

    Pieces of at least a quarter of a bin are told apart by half octaves of size. A class goes on `num_bins` pieces at a
    time, the oldest first and the longest class first, for as long as a bin has room for one of each; whoever has
    waited `max_age` steps goes on at once.

    Args:
        size_N: Shape (N,), int64, in the unit of `capacity` (< 2**29); the oldest first.
        age_N: Shape (N,), int64, steps since each was drawn.
    """
    class_N = size_classes(size_N, capacity)
    held_N = (class_N >= 0) & (age_N < max_age)
    overdue = int(size_N[(class_N >= 0) & ~held_N].sum())
    room = capacity - -(-overdue // num_bins)
    for number in _CLASSES:
        at = np.flatnonzero(held_N & (class_N == number))
        while len(at) >= num_bins and size_N[at[:num_bins]].max() <= room:
            room -= int(size_N[at[:num_bins]].max())
            held_N[at[:num_bins]] = False
            at = at[num_bins:]
    held = np.flatnonzero(held_N)
    newer_sum = np.cumsum(size_N[held][::-1])[::-1]
    held_N[held[newer_sum > MOST_HELD_STEPS * num_bins * capacity]] = False
    return held_N


def size_classes(size_N: Int64Array, capacity: int) -> Int64Array:
    """0 for a quarter of a bin and more, 1 from sqrt(2) times that on, up to 4 for a whole bin; -1 for less."""
    class_N = np.full(len(size_N), -1)
    for number in reversed(_CLASSES):
        class_N[16 * size_N**2 >= capacity**2 << number] = number
    return class_N
