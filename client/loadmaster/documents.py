"""Which samples a microbatch is made of.

# D = documents of a microbatch
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int32Array = npt.NDArray[np.int32]
FIELDS = ("source", "shard", "block", "row", "epoch", "first_token", "num_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The real documents of a microbatch, in the order in which they lie. Arrays of shape (D,), int32, read only.

    Padding, the masked tail and dummy documents have no entry.

    Attributes:
        source: Index into the stream's `source_names`.
        first_token: First token of the sample that is here; 0 unless the sample was cut.
        num_tokens: Real tokens, without padding.
    """

    source: Int32Array
    shard: Int32Array
    block: Int32Array
    row: Int32Array
    epoch: Int32Array
    first_token: Int32Array
    num_tokens: Int32Array

    def __len__(self) -> int:
        return len(self.source)

    def sample_ids(self, source_names: list[str]) -> list[str]:
        """`source/shard/block/row@epoch` of each, and `:first_token` after it where that is not 0."""
        columns = (getattr(self, name).tolist() for name in FIELDS[:-1])
        return [
            f"{source_names[source]}/{shard}/{block}/{row}@{epoch}" + (f":{first}" if first else "")
            for source, shard, block, row, epoch, first in zip(*columns, strict=True)
        ]


def documents_of(record: pa.RecordBatch) -> list[Documents]:
    """The documents of each row of a wire batch."""
    columns = {name: _rows(record.column(f"doc_{name}")) for name in FIELDS}
    return [Documents(**{name: columns[name][m] for name in FIELDS}) for m in range(record.num_rows)]


def _rows(column: pa.Array) -> list[Int32Array]:
    flat = column.values.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    ends = column.offsets.to_numpy(zero_copy_only=False).tolist()
    return [flat[a:b] for a, b in itertools.pairwise(ends)]


def boundaries_of(record: pa.RecordBatch) -> list[Int32Array]:
    """`cu_seqlens` of each row of a wire batch."""
    return _rows(record.column("cu_seqlens"))
