"""From Arrow to what a trainer computes with: torch tensors, or numpy arrays where torch is not wanted.

# M = microbatches, C = tokens of a microbatch
"""

from __future__ import annotations

import importlib
import importlib.util
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.slicing import SlicePlace, zigzag_index

Array = Any
"""A torch.Tensor or a numpy array, by the stream's framework."""


class Framework(StrEnum):
    """AUTO is TORCH where torch is installed, else NUMPY."""

    AUTO = "auto"
    TORCH = "torch"
    NUMPY = "numpy"

    def resolve(self) -> Framework:
        """TORCH or NUMPY. Does not import torch.

        Raises:
            ImportError: TORCH is asked for and not installed.
        """
        has_torch = importlib.util.find_spec("torch") is not None
        if self is Framework.TORCH and not has_torch:
            raise ImportError('framework="torch" needs torch: pip install "loadmaster[torch]"')
        if self is Framework.AUTO:
            return Framework.TORCH if has_torch else Framework.NUMPY
        return self


def to_ids(column: pa.Array, framework: Framework) -> Array:
    """A fixed-shape tensor column as token ids or labels.

    Returns:
        numpy: shape (M, C), int32, read only, a view of the received bytes where they are aligned.
        torch: shape (M, C), int64 (what embeddings and cross_entropy take), the caller's own.
    """
    values: npt.NDArray[np.int32] = column.to_numpy_ndarray()
    if framework is Framework.TORCH:
        return _torch().from_numpy(values.astype(np.int64))
    return np.require(values, requirements=["A"])


def to_index(values: npt.NDArray[np.int32], framework: Framework) -> Array:
    """A small int32 array, such as cu_seqlens, as it is (numpy) or as a torch.int32 tensor of its own."""
    return _torch().from_numpy(values.copy()) if framework is Framework.TORCH else np.require(values, requirements="A")


def positions(cu_seqlens: list[npt.NDArray[np.int32]], place: SlicePlace, framework: Framework) -> Array:
    """Position of each token of a slice in its document, shape (M, C / cp): int64 (torch) or int32 (numpy)."""
    rows = [np.arange(ends[-1]) - np.repeat(ends[:-1], np.diff(ends)) for ends in cu_seqlens]
    if place.cp > 1:
        index = [zigzag_index(ends, place.cp, place.cp_rank) for ends in cu_seqlens]
        rows = [row[kept] for row, kept in zip(rows, index, strict=True)]
    if framework is Framework.TORCH:
        return _torch().from_numpy(np.stack(rows).astype(np.int64))
    return np.stack(rows).astype(np.int32)


def _torch() -> Any:
    return importlib.import_module("torch")
