"""Measured rows, flat: what the window keeps and what metadata and pieces are built from.

# N = rows of a chunk, T = their tokens, V = span values (two a span)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..transforms.sample import Measured, SampleMedia
from ..wire.schemas import METADATA, Verdict

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
ChunkMedia = tuple[SampleMedia | None, ...]


CHUNK_ROWS = 64
"""Most rows of a chunk: the grain of parallel work and of eviction."""
CHUNK_BYTES = 4 << 20
"""Of large rows a chunk has fewer: about so many bytes of a block, but one row in any case."""


class Place(NamedTuple):
    """A block in one epoch's order; `pos` counts its rows in that order."""

    source: int
    epoch: int
    shard: int
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanTable:
    """Loss spans of N samples: [start, stop) pairs of target tokens, flat.

    Attributes:
        is_given_N: Bool (N,); False means that all tokens count.
        offsets: Int64 (N + 1,), into `values`.
        values: Int32 (V,), start and stop in turn.
    """

    is_given_N: BoolArray
    offsets: Int64Array
    values: Int32Array

    @staticmethod
    def from_lists(spans: Sequence[Int32Array | None] | None, num_rows: int) -> SpanTable:
        """Flatten what a transform returned; None stands for no spans at all."""
        if spans is None or all(s is None for s in spans):
            none, no_offsets = np.zeros(num_rows, bool), np.zeros(num_rows + 1, np.int64)
            return SpanTable(is_given_N=none, offsets=no_offsets, values=np.zeros(0, np.int32))
        flat = [np.zeros(0, np.int32) if s is None else np.asarray(s, np.int32).reshape(-1) for s in spans]
        offsets = np.concatenate([[0], np.cumsum([len(s) for s in flat])]).astype(np.int64)
        given = np.array([s is not None for s in spans], bool)
        return SpanTable(is_given_N=given, offsets=offsets, values=np.concatenate(flat))

    def part(self, start: int, stop: int) -> SpanTable:
        """Rows [start, stop)."""
        offsets = self.offsets[start : stop + 1]
        values = self.values[offsets[0] : offsets[-1]]
        return SpanTable(is_given_N=self.is_given_N[start:stop], offsets=offsets - offsets[0], values=values)

    @staticmethod
    def concat(tables: Sequence[SpanTable]) -> SpanTable:
        """All rows of all tables, in order."""
        counts = np.concatenate([np.zeros(1, np.int64), *(np.diff(t.offsets) for t in tables)])
        given = np.concatenate([np.zeros(0, bool), *(t.is_given_N for t in tables)])
        values = np.concatenate([np.zeros(0, np.int32), *(t.values for t in tables)])
        return SpanTable(is_given_N=given, offsets=np.cumsum(counts), values=values)

    def to_arrow(self) -> pa.Array:
        """A list<int32> array, null where not given."""
        offsets, mask = pa.array(self.offsets.astype(np.int32)), pa.array(~self.is_given_N)
        kind = METADATA.field("loss_spans").type
        return pa.ListArray.from_arrays(offsets, pa.array(self.values), type=kind, mask=mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows [pos, pos + N) of a place's order, measured. Never written to once made.

    Attributes:
        rows_N: Int64 (N,), row numbers in the block.
        verdict_N: Uint8 (N,), see `Verdict`.
        reasons: One per row where any row has one, else None.
        tokens_T: Int32 (T,).
        offsets: Int64 (N + 1,), into `tokens_T`.
        spans: Loss spans of the rows.
        row_bytes_N: Int64 (N,), size of each row's content as the transform saw it.
        media: One per row where any row has images, video or audio, else None. Never their bytes.
    """

    pos: int
    rows_N: Int64Array
    verdict_N: npt.NDArray[np.uint8]
    reasons: tuple[str | None, ...] | None
    tokens_T: Int32Array
    offsets: Int64Array
    spans: SpanTable
    row_bytes_N: Int64Array
    media: ChunkMedia | None = None

    @property
    def num_rows(self) -> int:
        return len(self.rows_N)

    @property
    def size_bytes(self) -> int:
        """Memory that the chunk holds."""
        spans = self.spans.values.nbytes + 9 * self.num_rows
        media = sum(map(_media_bytes, self.media)) if self.media is not None else 0
        return self.tokens_T.nbytes + spans + media + 25 * self.num_rows + 512

    def without_tokens(self) -> Chunk:
        """The same rows, measured, as far as metadata tells of them."""
        return replace(self, tokens_T=_NO_TOKENS)

    @property
    def lengths_N(self) -> Int64Array:
        """Tokens of each row; -1 where the row is not OK: nothing may be said of its length."""
        return np.where(self.verdict_N == Verdict.OK, np.diff(self.offsets), -1)


_NO_TOKENS = np.zeros(0, np.int32)
_ITEM_BYTES, _UNIT_BYTES = 400, 40


def _media_bytes(media: SampleMedia | None) -> int:
    return 8 if media is None else _ITEM_BYTES * (1 + len(media.items)) + _UNIT_BYTES * len(media.patches)


def chunk_of(measured: Measured, *, pos: int, rows_N: Int64Array) -> Chunk:
    """Keep what a transform measured of the rows at [pos, pos + N)."""
    has_reason = any(reason is not None for reason in measured.reason)
    return Chunk(
        pos=pos,
        rows_N=rows_N,
        verdict_N=measured.verdict,
        reasons=tuple(measured.reason) if has_reason else None,
        tokens_T=np.ascontiguousarray(measured.tokens, np.int32),
        offsets=np.asarray(measured.offsets, np.int64),
        spans=SpanTable.from_lists(measured.loss_spans, len(rows_N)),
        row_bytes_N=np.asarray(measured.size_bytes, np.int64),
        media=None if measured.media is None else tuple(measured.media),
    )
