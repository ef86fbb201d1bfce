"""A column of integer lists that most rows have none of.

# N = rows, V = values
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .columns import Int64Array

NONE = -1
_MISSING = np.broadcast_to(np.array(NONE, np.int64), (1 << 40,))
_NO_VALUES = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """Lists of integers, or no list, one a row. Columns that share values share their memory.

    Attributes:
        count_N: Shape (N,), int64, length of each row's list; NONE where it has none.
        start_N: Shape (N,), int64, where its values begin.
        values_V: Shape (V,), int64, with values of other rows between them.
    """

    count_N: Int64Array
    start_N: Int64Array
    values_V: Int64Array

    def __len__(self) -> int:
        return len(self.count_N)

    @property
    def is_nothing(self) -> bool:
        """Made by `nothing`, so no row has a list, and the column has no memory of its own."""
        return self.count_N.strides == (0,)

    @property
    def has_N(self) -> npt.NDArray[np.bool_]:
        """Which rows have a list, bool (N,)."""
        return np.asarray(self.count_N != NONE)

    def __getitem__(self, i: int) -> Int64Array | None:
        """The list of a row."""
        count, start = int(self.count_N[i]), int(self.start_N[i])
        return None if count == NONE else self.values_V[start : start + count]

    def take(self, index: Int64Array | slice) -> Lists:
        """The rows at `index` (positions or a slice), in that order."""
        if self.is_nothing:
            return Lists.nothing(len(self.count_N[index]))
        return Lists(count_N=self.count_N[index], start_N=self.start_N[index], values_V=self.values_V)

    def flat(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Positions of the rows that have a list (M,), the length of each (M,), and all their values in order."""
        if self.is_nothing:
            return _NO_VALUES, _NO_VALUES, _NO_VALUES
        at_M = np.flatnonzero(self.has_N)
        count_M, start_M = self.count_N[at_M], self.start_N[at_M]
        first_M = np.cumsum(count_M) - count_M
        return at_M, count_M, self.values_V[np.repeat(start_M - first_M, count_M) + np.arange(count_M.sum())]

    def without(self, index_M: Int64Array) -> Lists:
        """The same with no lists at these positions."""
        if self.is_nothing:
            return self
        count_N = self.count_N.copy()
        count_N[index_M] = NONE
        return Lists(count_N=count_N, start_N=self.start_N, values_V=self.values_V)

    @staticmethod
    def concat(parts: Sequence[Lists]) -> Lists:
        """All rows of `parts`; of their values those that they have."""
        num = sum(len(part) for part in parts)
        if all(part.is_nothing for part in parts):
            return Lists.nothing(num)
        first_P = np.cumsum([0, *(len(part) for part in parts)])
        flats = [part.flat() for part in parts]
        at_M = np.concatenate([first + at for first, (at, _, _) in zip(first_P.tolist(), flats, strict=False)])
        count_M, values_V = (np.concatenate([flat[i] for flat in flats]) for i in (1, 2))
        return Lists.of(num, at_M, count_M, values_V)

    @staticmethod
    def of(num: int, at_M: Int64Array, count_M: Int64Array, values_V: Int64Array) -> Lists:
        """`num` rows, of which those at `at_M` have lists: the inverse of `flat`."""
        if not len(at_M):
            return Lists.nothing(num)
        count_N, start_N = np.full(num, NONE, np.int64), np.zeros(num, np.int64)
        count_N[at_M], start_N[at_M] = count_M, np.cumsum(count_M) - count_M
        return Lists(count_N=count_N, start_N=start_N, values_V=values_V)

    @staticmethod
    def of_arrow(column: pa.Array) -> Lists:
        """A list column without nulls inside lists; null: no list."""
        if column.null_count == len(column):
            return Lists.nothing(len(column))
        at_M = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        count_M = column.value_lengths().drop_null().to_numpy().astype(np.int64)
        return Lists.of(len(column), at_M, count_M, column.flatten().to_numpy(zero_copy_only=False).astype(np.int64))

    @staticmethod
    def nothing(num: int) -> Lists:
        """`num` rows without lists."""
        return Lists(count_N=_MISSING[:num], start_N=_MISSING[:num], values_V=_NO_VALUES)
