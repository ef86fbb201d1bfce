"""Metadata of a source's rows as one integer matrix.

# N = rows, F = fields, K = loss spans
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.schemas import METADATA, Verdict

from .columns import Int64Array as Int64Array
from .columns import ObjectArray as ObjectArray
from .columns import join_objects, join_rows, matrix, nothing, positions, take_objects, take_rows
from .lists import Lists

Spans = npt.NDArray[np.int32]

UNIT, BLOCK_INDEX, POS, EPOCH, LANE, SHARD, BLOCK, TOKENS, VALID, ROW, VERDICT, SIZE = range(12)
"""Columns of the matrix; VALID counts the targets that have a loss when the row is served whole. What a cursor needs
lies side by side, and so does what a piece takes over."""
NUM_FIELDS = SIZE + 1
CURSOR = slice(UNIT, POS + 1)
TAKEN_OVER = slice(POS, VALID + 1)
_COLUMNS = {
    UNIT: "unit_index",
    BLOCK_INDEX: "block_index",
    POS: "pos",
    EPOCH: "epoch",
    LANE: "lane",
    SHARD: "shard",
    BLOCK: "block",
    TOKENS: "num_tokens",
    ROW: "row",
    VERDICT: "verdict",
    SIZE: "size_bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """Rows of one source.

    Attributes:
        values_NF: Shape (N, 12), int64, the columns UNIT .. SIZE; column by column in memory.
        spans_N: Shape (N,), objects: None (every target counts) or [start, stop) pairs, int32 (K, 2).
        reasons_N: Shape (N,), objects: None or why a row is skipped or bad.
        patches: Of N rows: the patches of each unit of the row's media; none: it has no media.
    """

    values_NF: Int64Array
    spans_N: ObjectArray
    reasons_N: ObjectArray
    patches: Lists

    def __len__(self) -> int:
        return len(self.values_NF)

    def take(self, index: npt.NDArray[np.generic] | slice) -> RowTable:
        """The rows at `index` (positions, a mask or a slice), in that order; a slice shares its memory."""
        if isinstance(index, slice):
            return RowTable(
                values_NF=self.values_NF[index],
                spans_N=self.spans_N[index],
                reasons_N=self.reasons_N[index],
                patches=self.patches.take(index),
            )
        index_M = positions(index)
        return RowTable(
            values_NF=take_rows(self.values_NF, index_M),
            spans_N=take_objects(self.spans_N, index_M),
            reasons_N=take_objects(self.reasons_N, index_M),
            patches=self.patches.take(index_M),
        )

    @staticmethod
    def concat(tables: Sequence[RowTable]) -> RowTable:
        """All rows of `tables`, one after the other."""
        if not tables:
            return RowTable.empty()
        if len(tables) == 1:
            return tables[0]
        return RowTable(
            values_NF=join_rows([table.values_NF for table in tables]),
            spans_N=join_objects([table.spans_N for table in tables]),
            reasons_N=join_objects([table.reasons_N for table in tables]),
            patches=Lists.concat([table.patches for table in tables]),
        )

    @staticmethod
    def empty() -> RowTable:
        return RowTable(
            values_NF=matrix(0, NUM_FIELDS), spans_N=nothing(0), reasons_N=nothing(0), patches=Lists.nothing(0)
        )


def count_valid(spans: Spans | None, first: int, stop: int, num_tokens: int) -> int:
    """Targets with a loss in the piece [first, stop) of a sample of `num_tokens`.

    Token j is the target of label j - 1, so the piece owns the targets first + 1 .. stop, and the sample's last token
    has no label of its own.
    """
    low, high = first + 1, min(stop + 1, num_tokens)
    if spans is None:
        return max(high - low, 0)
    overlap_K = np.minimum(spans[:, 1], high) - np.maximum(spans[:, 0], low)
    return int(overlap_K.clip(min=0).sum())


def tables_of(batch: pa.RecordBatch) -> Iterator[tuple[int, RowTable]]:
    """Split a METADATA batch by source, in order of the source's number.

    Raises:
        BadRequestError: Another schema, or a row with the verdict OK and no tokens.
    """
    if not batch.schema.equals(METADATA):
        raise BadRequestError(f"metadata must have the schema METADATA, got fields {batch.schema.names}")
    table, source_N = _table_of(batch), batch.column("source").to_numpy()
    if len(source_N) and (source_N == source_N[0]).all():
        yield int(source_N[0]), table
        return
    for source in np.unique(source_N):
        yield int(source), table.take(source_N == source)


def _table_of(batch: pa.RecordBatch) -> RowTable:
    values_NF = matrix(batch.num_rows, NUM_FIELDS)
    for column, name in _COLUMNS.items():
        values_NF[:, column] = batch.column(name).to_numpy()
    is_ok_N = values_NF[:, VERDICT] == Verdict.OK
    if (is_ok_N & (values_NF[:, TOKENS] < 1)).any():
        raise BadRequestError("num_tokens must be at least 1 where the verdict is OK, got a row of 0 tokens")
    values_NF[:, VALID] = np.where(is_ok_N, values_NF[:, TOKENS] - 1, 0)
    spans_N = _spans_of(batch.column("loss_spans"))
    patches = Lists.of_arrow(batch.column("image_patches"))
    for i in np.flatnonzero(is_ok_N & batch.column("loss_spans").is_valid().to_numpy(zero_copy_only=False)):
        tokens = int(values_NF[i, TOKENS])
        values_NF[i, VALID] = count_valid(spans_N[i], 0, tokens, tokens)
    reasons_N = _reasons_of(batch.column("reason"))
    return RowTable(values_NF=values_NF, spans_N=spans_N, reasons_N=reasons_N, patches=patches)


def _spans_of(column: pa.Array) -> ObjectArray:
    if column.null_count == len(column):
        return nothing(len(column))
    spans_N = np.full(len(column), None, np.object_)
    flat = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, 2)
    start = 0
    for i, length in enumerate(column.value_lengths().to_pylist()):
        if length is not None:
            spans_N[i] = flat[start : start + length // 2]
            start += length // 2
    return spans_N


def _reasons_of(column: pa.Array) -> ObjectArray:
    if column.null_count == len(column):
        return nothing(len(column))
    return np.asarray(column.to_numpy(zero_copy_only=False), np.object_)


def metadata_of(source: int, rows: RowTable) -> pa.RecordBatch:
    """The rows as a METADATA batch again, loss spans and patches left out."""
    num = len(rows)
    columns: dict[str, npt.NDArray[np.generic]] = {name: rows.values_NF[:, column] for column, name in _COLUMNS.items()}
    columns |= {"source": np.full(num, source), "reason": rows.reasons_N}
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(num, field.type)
        for field in METADATA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=METADATA)
