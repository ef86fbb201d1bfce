"""What no placement can go below.

# N = pieces, Q = classes of cost per size
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array

CLASSES = 512
CLASSES_PER_MEAN = 256.0
LONGEST_PREFIX = 512


class Densities(NamedTuple):
    """Pieces by cost per size: size and cost of all classes before each, and the least cost per size in each."""

    size_Q: Int64Array
    cost_Q: Float64Array
    least_Q: Float64Array


@compiled
def densities(size_N: Int64Array, cost_N: Float64Array) -> Densities:
    """Classes of equal width, from nothing to twice the mean; the last class takes the rest."""
    size_Q, cost_Q = np.zeros(CLASSES + 1, np.int64), np.zeros(CLASSES + 1)
    total = cost_N.sum()
    unit = total / size_N.sum() / CLASSES_PER_MEAN if total > 0 else 1.0
    for i in range(len(size_N)):
        q = min(int(cost_N[i] / (size_N[i] * unit)), CLASSES - 1)
        size_Q[q + 1] += size_N[i]
        cost_Q[q + 1] += cost_N[i]
    least_Q = np.arange(CLASSES) * unit * (1.0 - 1e-12)
    return Densities(np.cumsum(size_Q), np.cumsum(cost_Q), least_Q)


@compiled
def cheapest(classes: Densities, size: int) -> float:
    """Pieces of `size` together cost at least this (those of least cost per size, the last one in part)."""
    if size <= 0:
        return 0.0
    low, high = 0, CLASSES
    while high - low > 1:
        middle = (low + high) >> 1
        if classes.size_Q[middle] <= size:
            low = middle
        else:
            high = middle
    return float(classes.cost_Q[low] + classes.least_Q[low] * (size - classes.size_Q[low]))


@compiled
def lower_bound(
    size_N: Int64Array, cost_N: Float64Array, order_N: Int64Array, classes: Densities, parts: int, room: int
) -> float:  # fmt: skip
    """No way to put all pieces into `parts` parts of `room` each makes the costliest part cheaper than this.

    The k costliest pieces are in j <= k parts. The other parts hold at most their room, so these j hold the rest of
    all sizes, and the best is that it consists of the pieces of least cost per size. Dividing by j is least at j = k
    whenever it falls from k - 1 to k (it is convex); only such k count. k = 0 is the mean.

    Args:
        order_N: The costliest piece first, at least the first 512.
    """
    best = cost_N.sum() / parts
    slack = parts * room - size_N.sum()
    top_cost, top_size = 0.0, 0
    for k in range(1, min(parts, len(order_N), LONGEST_PREFIX) + 1):
        top_cost += cost_N[order_N[k - 1]]
        top_size += size_N[order_N[k - 1]]
        here = (top_cost + cheapest(classes, k * room - slack - top_size)) / k
        if k == 1 or here <= (top_cost + cheapest(classes, (k - 1) * room - slack - top_size)) / (k - 1):
            best = max(best, here)
    return float(best)
