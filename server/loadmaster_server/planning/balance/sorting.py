"""Orders by cost and by size in linear time, and a heap of ranks.

# N = items, H = entries of the heap
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from ..cost import Float64Array, Int64Array

DIGIT_BITS = 11
DIGITS = 1 << DIGIT_BITS
QUANTA = (1 << 2 * DIGIT_BITS) - 1
RANK_BITS = 20
KEY_LIMIT = float(1 << 42)


@compiled
def descending(key_N: Float64Array) -> Int64Array:
    """Order of items by key, greatest first, ties by index; keys closer than 2**-22 of the greatest are ties."""
    num = len(key_N)
    greatest = 0.0
    for i in range(num):
        greatest = max(greatest, key_N[i])
    scale = QUANTA / greatest if greatest > 0 else 0.0
    quantum_N = np.empty(num, np.int64)
    for i in range(num):
        quantum_N[i] = QUANTA - int(key_N[i] * scale)
    order_N = np.arange(num)
    order_N = by_digit(quantum_N, order_N, 0)
    return by_digit(quantum_N, order_N, DIGIT_BITS)


@compiled
def by_digit(key_N: Int64Array, order_N: Int64Array, shift: int) -> Int64Array:
    """One stable pass of a radix sort: `order_N` sorted by the digit of the key that starts at bit `shift`."""
    start = np.zeros(DIGITS + 1, np.int64)
    for i in range(len(key_N)):
        start[((key_N[i] >> shift) & (DIGITS - 1)) + 1] += 1
    start = np.cumsum(start)
    sorted_N = np.empty(len(order_N), np.int64)
    for k in range(len(order_N)):
        digit = (key_N[order_N[k]] >> shift) & (DIGITS - 1)
        sorted_N[start[digit]] = order_N[k]
        start[digit] += 1
    return sorted_N


@compiled
def sift_down(heap_H: Int64Array, num: int, at: int) -> None:
    """Restore a binary min-heap of `num` entries after the entry `at` has grown."""
    entry = heap_H[at]
    while True:
        child = 2 * at + 1
        if child >= num:
            break
        if child + 1 < num:
            child += int(heap_H[child + 1] < heap_H[child])  # no branch to guess wrong
        if heap_H[child] >= entry:
            break
        heap_H[at] = heap_H[child]
        at = child
    heap_H[at] = entry


@compiled
def sift_up(heap_H: Int64Array, at: int) -> None:
    """Restore a binary min-heap after the entry `at` was added."""
    entry = heap_H[at]
    while at > 0:
        parent = (at - 1) >> 1
        if heap_H[parent] <= entry:
            break
        heap_H[at] = heap_H[parent]
        at = parent
    heap_H[at] = entry
