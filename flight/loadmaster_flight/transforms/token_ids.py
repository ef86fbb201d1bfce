"""Columns that hold token ids already.

# n = tokens of one row
"""

from __future__ import annotations

import numpy as np

from ..sources.blocks import RowFault
from .sample import Int32Array, Outcome, bad, skipped


def token_ids_of(value: object, *, vocab_size: int) -> Int32Array | Outcome:
    """The ids of a row as int32 (n,), or why there are none.

    An id outside [0, vocab_size) makes the row bad; it is never wrapped, clipped or replaced.
    """
    if value is None:
        return skipped("null tokens")
    if isinstance(value, RowFault):
        return bad(value.reason)
    if not isinstance(value, (list, tuple, np.ndarray)):
        return bad(f"tokens must be a list of integers, got {type(value).__name__}")
    if not len(value):
        return skipped("empty tokens")
    ids_n = _as_array(value)
    return ids_n if isinstance(ids_n, Outcome) else _in_range(ids_n, vocab_size)


def _as_array(value: list[object] | tuple[object, ...] | np.ndarray) -> np.ndarray | Outcome:
    try:
        ids_n = np.asarray(value)
    except (ValueError, OverflowError):
        return bad("tokens must be a flat list of integers, got lists of several lengths")
    if ids_n.ndim != 1:
        return bad(f"tokens must be a flat list of integers, got {ids_n.ndim} dimensions")
    if ids_n.dtype.kind in "iu":
        return ids_n
    odd = next((v for v in value if isinstance(v, bool) or not isinstance(v, (int, np.integer))), None)
    if odd is None and ids_n.dtype.kind == "O" and None not in value:
        return ids_n  # Python integers beyond 64 bits: out of range, and compared as they are
    return bad(f"tokens must be integers, got {'null' if odd is None else type(odd).__name__}")


def _in_range(ids_n: np.ndarray, vocab_size: int) -> Int32Array | Outcome:
    outside = np.flatnonzero((ids_n < 0) | (ids_n >= vocab_size))
    if len(outside):
        return bad(f"token id {ids_n[outside[0]]} is outside [0, {vocab_size})")
    return ids_n.astype(np.int32)
