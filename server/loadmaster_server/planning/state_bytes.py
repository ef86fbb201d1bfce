"""A planner state's columns as bytes: one Arrow record, packed as a whole.

# S = sources, N = queued pieces, L = lanes of all sources
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.errors import BadRequestError

from .columns import Int64Array

MAGIC = b"LMPS"
VERSION = 4
_HEAD_BYTES = 13
_MAX_BYTES = 1 << 30
_LEVEL = 1

_INTEGERS = pa.list_(pa.field("item", pa.int64(), nullable=False))
SOURCE_COLUMNS = (
    "epoch",
    "next_lane",
    "head_offset",
    "head_tokens",
    "yielded_epoch",
    "is_exhausted",
    "num_rows",
    "num_lanes",
    "num_bad",
    "counted_rows",
    "counted_samples",
    "counted_tokens",
    "has_learned",
    "learned_rows",
    "learned_samples",
    "learned_tokens",
)
"""One value a source. `num_lanes` and `num_bad` say how many entries of `cursors` and of `bad_at` are a source's."""
LISTS = (
    "placed_tokens",
    "sources",
    "cursors",
    "bad_at",
    "pieces",
    "span_piece",
    "span_count",
    "spans",
    "media_piece",
    "unit_count",
    "unit_patches",
)
SCHEMA = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("is_over", pa.bool_(), nullable=False),
        pa.field("has_ended", pa.bool_(), nullable=False),
        pa.field("credits", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
        *(pa.field(name, _INTEGERS, nullable=False) for name in LISTS),
    ]
)
"""One row. Credits are decimal numbers: they may be of any size. `sources` and `pieces` hold their columns one after
the other; `cursors` (L, 3) and `spans` (K, 2) lie row by row; the pieces `span_piece` have `span_count` spans each, and
the pieces `media_piece`, which have media, `unit_count` units of `unit_patches` patches."""


def state_to_bytes(scalars: Mapping[str, Any], lists: Mapping[str, npt.ArrayLike]) -> bytes:
    """Magic, version, length and zstd-compressed Arrow IPC stream; equal columns have equal bytes.

    Args:
        scalars: step, is_over, has_ended, and credits as a list of strings.
        lists: Integers of each column of LISTS.
    """
    arrays = [pa.array([scalars[field.name]], field.type) for field in SCHEMA if field.name not in lists]
    for name in LISTS:
        values = pa.array(np.asarray(lists[name], np.int64).reshape(-1))
        arrays.append(pa.ListArray.from_arrays(np.array([0, len(values)], np.int32), values, type=_INTEGERS))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    stream = sink.getvalue()
    packed = pa.Codec("zstd", compression_level=_LEVEL).compress(stream, asbytes=True)
    return b"".join([MAGIC, bytes([VERSION]), stream.size.to_bytes(8, "big"), packed])


def state_from_bytes(data: bytes) -> tuple[dict[str, Any], dict[str, Int64Array]]:
    """Inverse of `state_to_bytes`: scalars, and lists as int64 arrays of one axis, which are read only.

    Raises:
        BadRequestError: Not a planner state, or one of another version; says which.
    """
    if data[:4] != MAGIC or len(data) < _HEAD_BYTES:
        raise BadRequestError(f"a planner state must begin with {MAGIC!r}, got {data[:4]!r}")
    if data[4] != VERSION:
        raise BadRequestError(f"a planner state must have version {VERSION}, got {data[4]}")
    try:
        batch = _record(data)
    except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
        raise BadRequestError(f"a planner state that cannot be read: {error}") from error
    scalars = {field.name: batch.column(field.name)[0].as_py() for field in SCHEMA if field.name not in LISTS}
    return scalars, {name: batch.column(name)[0].values.to_numpy() for name in LISTS}


def _record(data: bytes) -> pa.RecordBatch:
    size_bytes = int.from_bytes(data[5:_HEAD_BYTES], "big")
    if size_bytes > _MAX_BYTES:
        raise ValueError(f"size must be <= {_MAX_BYTES} bytes, got {size_bytes}")
    stream = pa.Codec("zstd").decompress(data[_HEAD_BYTES:], decompressed_size=size_bytes)
    with pa.ipc.open_stream(stream) as reader:
        if not reader.schema.equals(SCHEMA):
            raise ValueError(f"its schema must be that of version {VERSION}, got fields {reader.schema.names}")
        batch = reader.read_next_batch()
    batch.validate(full=True)
    if batch.num_rows != 1:
        raise ValueError(f"it must have one row, got {batch.num_rows}")
    return batch
