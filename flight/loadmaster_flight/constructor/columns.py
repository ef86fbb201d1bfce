"""Columns of a batch: lists of small numbers, and payloads that are copied once, into one buffer.

# M = microbatches
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .delivery import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Rows of a payload: `data` holds their bytes; None: zeros."""

    num_rows: int
    data: Bytes | None = None


def list_column(kind: pa.DataType, ends: npt.ArrayLike, flat: npt.NDArray[np.generic]) -> pa.Array:
    """A list column by its offsets (M + 1) and its values; copies what has another type than `kind` wants."""
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat, kind.value_type), type=kind)


def lists_column(kind: pa.DataType, rows_M: Sequence[Sequence[object]]) -> pa.Array:
    """A list column of few values, row by row; grids (t, h, w) too."""
    return pa.array(rows_M, kind)


def payload_column(kind: pa.DataType, loads_M: Sequence[Sequence[Load]], *, row_bytes: int) -> pa.Array:
    """A large list of fixed-size rows. Every byte is copied once, from where it was received.

    Args:
        kind: large_list<fixed_size_list<number>>.
        loads_M: Per microbatch, its loads in order.
        row_bytes: Bytes of one row.
    """
    num_rows_M = [sum(load.num_rows for load in loads) for loads in loads_M]
    buffer = np.empty(sum(num_rows_M) * row_bytes, np.uint8)
    at = 0
    for loads in loads_M:
        for load in loads:
            size = load.num_rows * row_bytes
            buffer[at : at + size] = 0 if load.data is None else load.data
            at += size
    row = kind.value_type
    num = sum(num_rows_M) * row.list_size
    values = pa.Array.from_buffers(row.value_type, num, [None, pa.py_buffer(buffer)])
    ends = pa.array(np.cumsum([0, *num_rows_M]), pa.int64())
    return pa.LargeListArray.from_arrays(ends, pa.FixedSizeListArray.from_arrays(values, type=row), type=kind)
