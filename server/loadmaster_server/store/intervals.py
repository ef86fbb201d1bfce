"""Which pieces a step has, without their bins: what stays of a plan when its body has gone to a segment file.

# N = pieces, R = ranges, U = units of media
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.step_plan import WHOLE, Pieces

RANGES = tuple(f"range_{name}" for name in ("source", "epoch", "lane", "shard", "block", "pos", "count"))
CUTS = ("cut_piece", "cut_first", "cut_tokens")
MEDIA = ("media_piece", "media_units")
GROUPS = (RANGES, CUTS, MEDIA)
"""Columns of STEP_PLAN that are of one length in a step."""
NO_BIN = -1
_HEAD_BYTES = 8 * len(GROUPS)
Int64Array = npt.NDArray[np.int64]
_MAX_BYTES = 1 << 30
_CODEC = "zstd"


def intervals_of(batch: pa.RecordBatch) -> bytes:
    """The ranges, the cut pieces and the numbers of units of one plan.

    Args:
        batch: One row of schema STEP_PLAN.
    """
    columns = [[_column(batch, name) for name in names] for names in GROUPS]
    # Ranges of a lane follow each other: differences pack better than places.
    packed = np.concatenate([np.diff(column, prepend=0) for group in columns for column in group]).astype("<i8")
    head = np.array([len(group[0]) for group in columns], "<i8").tobytes()
    return head + bytes(pa.Codec(_CODEC).compress(packed.tobytes(), asbytes=True))


def pieces_of(data: bytes) -> tuple[Pieces, Int64Array]:
    """Inverse of `intervals_of`: the pieces in their canonical order, each with NO_BIN, and piece_U of their units.

    Raises:
        BadRequestError: These are no intervals.
    """
    try:
        lengths = [int(length) for length in np.frombuffer(data[:_HEAD_BYTES], "<i8", len(GROUPS))]
        ends = np.cumsum([len(names) * length for names, length in zip(GROUPS, lengths, strict=True)])
        size = 8 * int(ends[-1])
        if min(lengths) < 0 or size > _MAX_BYTES:
            raise ValueError(f"size must be in [0, {_MAX_BYTES}], got {size}")
        values = np.frombuffer(pa.Codec(_CODEC).decompress(data[_HEAD_BYTES:], decompressed_size=size), "<i8")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadRequestError(f"intervals of a plan that cannot be read: {error}") from error
    parts = np.split(values, ends[:-1])
    ranges, cuts, media = (
        np.cumsum(part.reshape(len(names), length), axis=1)
        for part, names, length in zip(parts, GROUPS, lengths, strict=True)
    )
    return _pieces(ranges, cuts), np.repeat(*media)


def _column(batch: pa.RecordBatch, name: str) -> Int64Array:
    return np.asarray(batch.column(name)[0].values.to_numpy(zero_copy_only=False), np.int64)


def _pieces(ranges: Int64Array, cuts: Int64Array) -> Pieces:
    *places_R, count_R = ranges
    source, epoch, lane, shard, block, pos = (np.repeat(place_R, count_R) for place_R in places_R)
    num = int(count_R.sum())
    offset_N = np.arange(num) - np.repeat(np.cumsum(count_R) - count_R, count_R)
    first_N, length_N = np.zeros(num, np.int64), np.full(num, WHOLE, np.int64)
    first_N[cuts[0]], length_N[cuts[0]] = cuts[1], cuts[2]
    return Pieces(
        source=source,
        epoch=epoch,
        lane=lane,
        shard=shard,
        block=block,
        pos=pos + offset_N,
        first_token=first_N,
        num_tokens=length_N,
        bin=np.full(num, NO_BIN, np.int64),
    )
