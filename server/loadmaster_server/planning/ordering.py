"""Sorting by several small integers at once.

# N = entries
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .columns import Int64Array

_DIGIT_BITS = 16
_CODE_BITS = 62
_FEW = 256


def stable_order(keys: Sequence[Int64Array]) -> Int64Array:
    """Positions that sort by `keys` (the most significant first), int64 (N,); equal entries keep their order.

    The keys' ranges in a step are small, so they are packed into one integer of a few 16-bit digits, and numpy sorts
    16-bit integers by counting: 5-15 times as fast as `np.lexsort` from 10,000 entries on.
    """
    if len(keys[0]) < _FEW:
        return np.lexsort(keys[::-1]).astype(np.int64)
    order_N: Int64Array | None = None
    for code_N, bits in _codes(keys):
        for shift in range(0, bits, _DIGIT_BITS):
            digit_N = (code_N >> shift).astype(np.uint16)
            if order_N is None:
                order_N = np.argsort(digit_N, kind="stable")
            else:
                order_N = order_N[np.argsort(digit_N[order_N], kind="stable")]
    return np.arange(len(keys[0])) if order_N is None else order_N


def _codes(keys: Sequence[Int64Array]) -> Iterator[tuple[Int64Array, int]]:
    """The keys packed into integers of at most 62 bits, the least significant first, with the bits of each."""
    code_N, bits = np.zeros(len(keys[0]), np.int64), 0
    for key_N in reversed(keys):
        low, width = int(key_N.min()), int(key_N.max() - key_N.min()).bit_length()
        if not width:
            continue
        if bits + width > _CODE_BITS:
            yield code_N, bits
            code_N, bits = np.zeros(len(key_N), np.int64), 0
        code_N = code_N | ((key_N - low) << bits)
        bits += width
    yield code_N, bits
