"""The fingerprint of a batch: equal for equal content, however it was built or sent."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa


def record_digest(record: pa.RecordBatch) -> str:
    """SHA-256 (hex) over the bytes of all fields in name order.

    A field is its name, then its values row after row as little-endian numbers; lists have the length of each row
    (int64) before their values. Slicing, chunking and alignment make no difference.
    """
    digest = hashlib.sha256()
    for name in sorted(record.schema.names):
        digest.update(name.encode() + b"\0")
        for part in _parts(record.column(name)):
            digest.update(np.ascontiguousarray(part, part.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def _parts(column: pa.Array) -> list[np.ndarray]:
    if isinstance(column, pa.FixedShapeTensorArray):
        return [column.to_numpy_ndarray()]
    if isinstance(column, (pa.ListArray, pa.LargeListArray)):
        offsets = column.offsets.to_numpy(zero_copy_only=False)
        return [np.diff(offsets).astype(np.int64), *_parts(column.flatten())]
    if isinstance(column, pa.FixedSizeListArray):
        return _parts(column.flatten())
    return [column.to_numpy(zero_copy_only=False)]
