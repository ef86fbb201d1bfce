"""What is read at once: the Block contract, faults of rows, and the blocks that hold nothing but faults.

# N = requested rows
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..spec.source import SourceSpec

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFault:
    """Stands in place of a row, or of a value of it, whose content cannot be read."""

    reason: str


class EndOfShardError(Exception):
    """A block past the last one was asked for: how readers of unseekable shards learn where a shard ends."""


class ContentError(Exception):
    """Bytes arrived and do not decode. The message is the reason that a verdict will carry."""


class Block(Protocol):
    """Rows of one block, in memory. Immutable: any thread may read it."""

    @property
    def num_rows(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def column(self, path: str, rows: Int64Array) -> list[object]:
        """Python values of a dotted path for the given row numbers, in their order.

        None where a value is null or missing; a `RowFault` where the row's content cannot be read.
        """

    def row(self, index: int) -> dict[str, object] | RowFault:
        """A whole row, as far as the reader's projection goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultBlock:
    """A block that could not be decoded: every row of it is the same fault."""

    num_rows: int
    reason: str
    size_bytes: int = 0

    def column(self, path: str, rows: Int64Array) -> list[object]:
        return [RowFault(reason=self.reason)] * len(rows)

    def row(self, index: int) -> dict[str, object] | RowFault:
        return RowFault(reason=self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Which columns are read.

    Attributes:
        paths: Dotted paths; None reads everything.
        text_path: The path whose binary values are text: bytes there are decoded as UTF-8.
    """

    paths: tuple[str, ...] | None = None
    text_path: str | None = None

    @staticmethod
    def of_spec(spec: SourceSpec) -> Projection:
        """The columns that a source's transform reads; a user's function may read all of them."""
        transform = spec.transform
        if transform.function is not None:
            return Projection()
        content = (transform.text, transform.messages, transform.tokens)
        named = [path for path in (*content, *transform.media_paths) if path is not None]
        return Projection(paths=tuple(dict.fromkeys(named)), text_path=transform.text)


def heads(path: str) -> list[tuple[str, str]]:
    """Ways to split a dotted path into a name and the rest, longest name first: names may hold dots themselves."""
    parts = path.split(".")
    return [(".".join(parts[:i]), ".".join(parts[i:])) for i in range(len(parts), 0, -1)]


def value_at(row: Mapping[str, Any], path: str) -> object:
    """The value of a dotted path in nested mappings; None where it is missing."""
    if path in row:
        return row[path]
    for head, rest in heads(path)[1:]:
        inner = row.get(head)
        if isinstance(inner, Mapping):
            return value_at(inner, rest)
    return None


def as_text(value: object) -> object:
    """Bytes decoded as UTF-8, a fault where they are not; other values as they are."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        return RowFault(reason=f"invalid UTF-8 at byte {error.start}")
