"""Best fit: each piece into the fullest bin that has room.

# N = pieces, B = bins, C = free sizes, T = nodes of a tree
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import Int64Array
from .compiled import HAS_NUMBA, compiled, interpreted

Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
UNPLACED = -1
COMPILE_FROM = 2000
"""Pieces from which on compiled code is used: loading it costs a process half a second, compiling it some more once."""


def best_fit(size_N: Int64Array | Sequence[int], num_bins: int, capacity: int) -> Int64Array:
    """Put each piece, in the order given, into the fullest bin that has room; ties go to the lowest bin.

    Args:
        size_N: Shape (N,), size of each piece, >= 1, in the unit of `capacity`.

    Returns:
        Bin of each piece, int64 (N,), UNPLACED where none has room.
    """
    size_N = np.asarray(size_N, np.int64)
    num_leaves = 1 << capacity.bit_length()
    root_C, child_2B = np.full(capacity + 1, -1, np.int32), np.full((2, num_bins), -1, np.int32)
    root_C[capacity] = 0
    child_2B[1, :-1] = np.arange(1, num_bins)  # all bins in one heap, in order
    has_T = np.zeros(2 * num_leaves, np.int8)
    arrays: list[Any] = [size_N, root_C, child_2B[0], child_2B[1], has_T, np.empty(len(size_N), np.int64)]
    fit: Callable[..., None] = fit_all
    if not HAS_NUMBA or len(size_N) < COMPILE_FROM:
        fit, arrays = interpreted(fit_all), [array.tolist() for array in arrays]
    fit(*arrays, num_leaves, capacity)
    return np.asarray(arrays[-1], np.int64)


@compiled
def fit_all(
    size_N: Int64Array, root_C: Int32Array, left_B: Int32Array, right_B: Int32Array, has_T: Int8Array,
    bin_N: Int64Array, num_leaves: int, capacity: int,
) -> None:  # fmt: skip
    """Fill bin_N. The bins of a free size are a skew heap with its root in root_C; a tree says which sizes have any."""
    _mark(has_T, num_leaves + capacity)
    for i in range(len(size_N)):
        free = _least_from(has_T, num_leaves, size_N[i]) if size_N[i] <= capacity else -1
        if free < 0:
            bin_N[i] = -1
            continue
        b = root_C[free]
        bin_N[i] = b
        root_C[free] = _melded(left_B[b], right_B[b], left_B, right_B)
        if root_C[free] < 0:
            _clear(has_T, num_leaves + free)
        left_B[b] = right_B[b] = -1
        free -= size_N[i]
        if free > 0:
            if root_C[free] < 0:
                _mark(has_T, num_leaves + free)
            root_C[free] = _melded(root_C[free], b, left_B, right_B)


@compiled
def _melded(a: int, b: int, left_B: Int32Array, right_B: Int32Array) -> int:
    """Root of two skew heaps (Sleator and Tarjan 1986) in one: along the right spines, children exchanged."""
    if a < 0 or b < 0:
        return max(a, b)
    if b < a:
        a, b = b, a
    root = a
    while True:
        rest = right_B[a]
        right_B[a] = left_B[a]
        if rest < 0:
            left_B[a] = b
            return root
        if b < rest:
            rest, b = b, rest
        left_B[a] = rest
        a = rest


@compiled
def _least_from(has_T: Int8Array, num_leaves: int, size: int) -> int:
    """The least marked size >= `size`, -1 when there is none."""
    node = num_leaves + size
    while not has_T[node]:
        while node % 2 == 1:  # a right child: what is right of it lies further up
            node //= 2
        if node <= 1:
            return -1
        node += 1
    while node < num_leaves:
        node = 2 * node if has_T[2 * node] else 2 * node + 1
    return node - num_leaves


@compiled
def _mark(has_T: Int8Array, node: int) -> None:
    while node > 0 and not has_T[node]:
        has_T[node] = 1
        node //= 2


@compiled
def _clear(has_T: Int8Array, node: int) -> None:
    has_T[node] = 0
    while node > 1 and not has_T[node ^ 1]:
        node //= 2
        has_T[node] = 0
