"""Dealing items out in fixed numbers: the costliest item to the part that is done first and has a place left.

# N = items, D = parts (ranks, or bins of a rank), M = places of a part
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array
from .sorting import KEY_LIMIT, RANK_BITS, descending, sift_down


@compiled
def deal(cost_N: Float64Array, quota_D: Int64Array, slow_D: Float64Array, extra: float, mean: float) -> Int64Array:
    """Part of each item, int64 (N,); part d gets quota_D[d] items, which must sum to N.

    Args:
        slow_D: Time that part d takes for a unit of cost.
        extra: Pipeline stages that wait for the costliest item, pp - 1; `mean` is the mean cost of an item.
    """
    scale = KEY_LIMIT / ((1.0 + extra) * (cost_N.sum() + 1.0) * slow_D.max())
    part_N, left_D = np.empty(len(cost_N), np.int64), quota_D.copy()
    cost_D, top_D = np.zeros(len(slow_D)), np.zeros(len(slow_D))
    heap = np.flatnonzero(quota_D)
    num = len(heap)
    for i in descending(cost_N):
        part = heap[0] & ((1 << RANK_BITS) - 1)
        part_N[i] = part
        left_D[part] -= 1
        cost_D[part] += cost_N[i]
        top_D[part] = max(top_D[part], cost_N[i])
        if left_D[part] == 0:
            num -= 1
            heap[0] = heap[num]
        else:
            key = (cost_D[part] + extra * max(0.0, top_D[part] - mean)) * slow_D[part]
            heap[0] = (int(key * scale) << RANK_BITS) | part
        sift_down(heap, num, 0)
    return part_N


@compiled
def members(part_N: Int64Array, num_parts: int, places: int) -> Int64Array:
    """Items of each part in ascending order, int64 (D, M); every part must have M."""
    items_DM, used_D = np.empty((num_parts, places), np.int64), np.zeros(num_parts, np.int64)
    for i in range(len(part_N)):
        part = part_N[i]
        items_DM[part, used_D[part]] = i
        used_D[part] += 1
    return items_DM


@compiled
def even_quota(num: int, num_parts: int) -> Int64Array:
    """`num` items over the parts, at most one more in the first ones, int64 (D,)."""
    quota_D = np.full(num_parts, num // num_parts, np.int64)
    quota_D[: num % num_parts] += 1
    return quota_D
