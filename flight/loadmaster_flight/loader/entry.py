"""What the window keeps rows in, and how a caller holds on to them.

# N = rows of an entry
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from .chunk import Chunk, ChunkMedia, Int64Array, Place


class Entry:
    """Rows [start, stop) of a place. Only the window changes it, under its lock."""

    __slots__ = (
        "chunk",
        "future",
        "is_done",
        "is_stale",
        "lane",
        "lengths_N",
        "media",
        "num_delivered",
        "pins",
        "place",
        "rank",
        "start",
        "stop",
    )

    def __init__(self, place: Place, lane: int, start: int, stop: int, rank: int) -> None:
        self.place, self.lane, self.start, self.stop, self.rank = place, lane, start, stop, rank
        self.future: Future[Chunk] | None = None
        self.chunk: Chunk | None = None
        self.lengths_N: Int64Array | None = None  # as first measured; -1 where the row was not OK
        self.media: ChunkMedia | None = None  # as first measured
        self.pins = self.num_delivered = 0
        self.is_done = self.is_stale = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A pinned entry: its chunk is or will be in `future`, and stays until the hold is released."""

    entry: Entry
    future: Future[Chunk]

    def lengths_N(self) -> Int64Array:
        """Tokens of each row as first measured, -1 where unknown; call it when `future` is done."""
        lengths_N = self.entry.lengths_N
        assert lengths_N is not None, "a filled entry knows its lengths"
        return lengths_N

    @property
    def media(self) -> ChunkMedia | None:
        """Media of each row as first measured; read it when `future` is done."""
        return self.entry.media


class Holds:
    """Holds of one caller, and the entries among them that it must fill (or fail)."""

    def __init__(self) -> None:
        self.all: list[Hold] = []
