"""What a block of a shard offers to a transform, and how a row says that its content cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

# n = rows asked for

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowFault:
    """Stands in place of a value that cannot be read: the same bytes failed twice. `reason` is short and stable."""

    reason: str


class Block(Protocol):
    """The rows of one block, in memory. Safe to read from several threads."""

    @property
    def num_rows(self) -> int:
        """Rows of the block, readable or not."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes that the block holds in memory."""
        ...

    def column(self, path: str, rows: Int64Array) -> list[object]:
        """The values of a dotted path at `rows` (int64, shape (n,)): None where null or missing, or a RowFault."""
        ...

    def row(self, index: int) -> dict[str, Any] | RowFault:
        """One whole row."""
        ...
