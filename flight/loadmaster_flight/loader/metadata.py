"""METADATA from measured chunks, column by column: there is never an object per row.

# N = rows of the answer, P = parts of chunks it is made of
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..wire.schemas import METADATA, Verdict
from .chunk import Chunk, Place, SpanTable

_NO_SPANS = SpanTable.from_lists(None, 1)
_END = Chunk(
    pos=-1,
    rows_N=np.full(1, -1, np.int64),
    verdict_N=np.full(1, Verdict.LANE_END, np.uint8),
    reasons=None,
    tokens_T=np.zeros(0, np.int32),
    offsets=np.zeros(2, np.int64),
    spans=_NO_SPANS,
    row_bytes_N=np.zeros(1, np.int64),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePart:
    """Rows [start, stop) of a chunk, as a lane meets them."""

    lane: int
    unit_index: int
    block_index: int
    place: Place
    chunk: Chunk
    start: int
    stop: int

    @property
    def num_tokens(self) -> int:
        """Of the part's rows; the chunk need not have them any more."""
        return int(self.chunk.offsets[self.stop] - self.chunk.offsets[self.start])


def lane_end(lane: int, source: int, epoch: int) -> LanePart:
    """The mark that a lane has no more rows in this epoch: every place in it is -1."""
    place = Place(source, epoch, -1, -1)
    return LanePart(lane=lane, unit_index=-1, block_index=-1, place=place, chunk=_END, start=0, stop=1)


def metadata_batch(parts: Sequence[LanePart]) -> pa.RecordBatch:
    """One METADATA row for each row of each part, in order."""
    count_P = np.array([part.stop - part.start for part in parts], np.int64)

    def spread(values_P: list[int]) -> npt.NDArray[np.int64]:
        return np.repeat(np.array(values_P, np.int64), count_P)

    def joined(arrays: list[npt.NDArray[np.generic]]) -> npt.NDArray[np.generic]:
        return np.concatenate([np.zeros(0, np.int64), *arrays])

    columns = {
        "source": spread([p.place.source for p in parts]),
        "epoch": spread([p.place.epoch for p in parts]),
        "lane": spread([p.lane for p in parts]),
        "unit_index": spread([p.unit_index for p in parts]),
        "block_index": spread([p.block_index for p in parts]),
        "shard": spread([p.place.shard for p in parts]),
        "block": spread([p.place.block for p in parts]),
        "pos": joined([np.arange(p.chunk.pos + p.start, p.chunk.pos + p.stop) for p in parts]),
        "row": joined([p.chunk.rows_N[p.start : p.stop] for p in parts]),
        "verdict": joined([p.chunk.verdict_N[p.start : p.stop] for p in parts]),
        "num_tokens": joined([np.diff(p.chunk.offsets[p.start : p.stop + 1]) for p in parts]),
        "size_bytes": joined([p.chunk.row_bytes_N[p.start : p.stop] for p in parts]),
    }
    arrays = {name: pa.array(_as(name, values)) for name, values in columns.items()}
    arrays["reason"] = pa.array([reason for part in parts for reason in _reasons(part)], pa.string())
    arrays["loss_spans"] = SpanTable.concat([p.chunk.spans.part(p.start, p.stop) for p in parts]).to_arrow()
    arrays["image_patches"] = _image_patches(parts)
    return pa.RecordBatch.from_arrays([arrays[name] for name in METADATA.names], schema=METADATA)


def _as(name: str, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    kind: npt.DTypeLike = METADATA.field(name).type.to_pandas_dtype()
    return values.astype(kind)


def _reasons(part: LanePart) -> Sequence[str | None]:
    reasons = part.chunk.reasons
    return [None] * (part.stop - part.start) if reasons is None else reasons[part.start : part.stop]


def _image_patches(parts: Sequence[LanePart]) -> pa.Array:
    """Patches of each unit of each row, null for rows without media."""
    kind = METADATA.field("image_patches").type
    if all(part.chunk.media is None for part in parts):
        return pa.nulls(sum(part.stop - part.start for part in parts), kind)
    return pa.array([patches for part in parts for patches in _patches_of(part)], kind)


def _patches_of(part: LanePart) -> Sequence[Sequence[int] | None]:
    media = part.chunk.media
    if media is None:
        return [None] * (part.stop - part.start)
    return [None if row is None else row.patches for row in media[part.start : part.stop]]
