"""Tables as matrices that lie column by column in memory, and columns of objects that are mostly None.

# N = rows, F = columns
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]

_NOTHING = np.broadcast_to(np.array(None, np.object_), (1 << 40,))


def matrix(num_rows: int, num_columns: int) -> Int64Array:
    """An empty matrix (N, F) whose columns lie one after the other: rules look at columns, all rows at a time."""
    return np.empty((num_columns, num_rows), np.int64).T


def positions(index: npt.NDArray[np.generic]) -> Int64Array:
    """Positions, from positions or from a mask."""
    return np.flatnonzero(index) if index.dtype == np.bool_ else index.astype(np.int64, copy=False)


def take_rows(values_NF: Int64Array, index_M: Int64Array) -> Int64Array:
    """The rows at `index_M`, (M, F), again column by column."""
    if values_NF.T.flags.c_contiguous:
        return values_NF.T.take(index_M, axis=1).T
    taken_MF = matrix(len(index_M), values_NF.shape[1])
    for column in range(values_NF.shape[1]):
        taken_MF[:, column] = values_NF[:, column][index_M]
    return taken_MF


def join_rows(parts: Sequence[Int64Array]) -> Int64Array:
    """All rows of `parts`, again column by column."""
    return np.concatenate([part.T for part in parts], axis=1).T


def nothing(num: int) -> ObjectArray:
    """`num` times None. Read only: it has no memory of its own."""
    return _NOTHING[:num]


def is_nothing(objects_N: ObjectArray) -> bool:
    """Made by `nothing`, so every entry is None."""
    return objects_N.strides == (0,)


def take_objects(objects_N: ObjectArray, index_M: Int64Array) -> ObjectArray:
    """The entries at `index_M`."""
    return nothing(len(index_M)) if is_nothing(objects_N) else objects_N[index_M]


def join_objects(parts: Sequence[ObjectArray]) -> ObjectArray:
    """All entries of `parts`."""
    if all(is_nothing(part) for part in parts):
        return nothing(sum(len(part) for part in parts))
    return np.concatenate(parts)
