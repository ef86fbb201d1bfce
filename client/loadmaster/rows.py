"""Payload columns of a batch as matrices: views of the received bytes, one a microbatch.

# P = rows of one microbatch
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .tensors import Array, Framework

Numbers = npt.NDArray[np.generic]
_STORED: Mapping[str, type[np.generic]] = {
    "uint8": np.uint8,
    "int16": np.int16,
    "float16": np.float16,
    "bfloat16": np.uint16,
}


def row_matrices(column: pa.LargeListArray, dtype: str, framework: Framework) -> list[Array]:
    """Each microbatch's rows, shape (P, width). Nothing is copied, unless the received bytes are not aligned.

    Args:
        column: large_list<fixed_size_list<number>>.
        dtype: uint8, int16, float16 or bfloat16. numpy knows no bfloat16: there it is its bits, uint16.

    Returns:
        numpy: read only. torch: not to be written to, since the memory is the received batch's.
    """
    rows = column.values
    width = rows.type.list_size
    flat = _flat(rows.values, _STORED[dtype])
    matrix = flat[rows.offset * width : (rows.offset + len(rows)) * width].reshape(-1, width)
    ends = column.offsets.to_numpy(zero_copy_only=False).tolist()
    parts = [matrix[a:b] for a, b in itertools.pairwise(ends)]
    return [_to_torch(part, dtype) for part in parts] if framework is Framework.TORCH else list(parts)


def small_lists(column: pa.ListArray, framework: Framework) -> list[Array]:
    """Each microbatch's few numbers, shape (n,), or (n, 3) of grids: int32 (numpy) or int64 (torch)."""
    flat = column.values
    width = flat.type.list_size if pa.types.is_fixed_size_list(flat.type) else None
    values = flat.flatten() if width else flat
    numbers = values.to_numpy(zero_copy_only=False).astype(np.int32 if framework is Framework.NUMPY else np.int64)
    shaped = numbers.reshape(-1, width) if width else numbers
    ends = column.offsets.to_numpy(zero_copy_only=False).tolist()
    parts = [shaped[a:b] for a, b in itertools.pairwise(ends)]
    if framework is Framework.TORCH:
        torch = importlib.import_module("torch")
        return [torch.from_numpy(part) for part in parts]
    return list(parts)


def _flat(values: pa.Array, stored: type[np.generic]) -> Numbers:
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(0, stored)
    size = np.dtype(stored).itemsize
    numbers: Numbers = np.frombuffer(buffer, stored, len(values), values.offset * size)
    return np.require(numbers, requirements="A")


class _Lent:
    """Read-only memory, lent to torch, which has no read-only tensors and warns of such arrays. Keeps it alive."""

    def __init__(self, values: Numbers) -> None:
        self._values = values
        self.__array_interface__ = {**values.__array_interface__, "data": (values.ctypes.data, False)}


def _to_torch(values: Numbers, dtype: str) -> Any:
    torch = importlib.import_module("torch")
    bits = values.view(np.int16) if dtype == "bfloat16" else values
    tensor = torch.from_numpy(np.asarray(_Lent(bits)))
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
