"""A block of Arrow rows: what Parquet row groups and Arrow record batches become.

# C = chunks of a column, N = requested rows
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from .blocks import RowFault, as_text, heads

Int64Array = npt.NDArray[np.int64]


class ArrowBlock:
    """Rows of a table. Columns may have several chunks, so that a column of any size fits.

    Args:
        table: The projected columns.
        num_rows: Rows of the block, also where no projected column exists.
        text_path: The path whose binary values are text.
    """

    def __init__(self, table: pa.Table, *, num_rows: int, text_path: str | None = None) -> None:
        self._table = table
        self._text_path = text_path
        self.num_rows = num_rows
        self.size_bytes = int(table.nbytes)

    def column(self, path: str, rows: Int64Array) -> list[object]:
        """Values of a dotted path: a top-level name, then fields of structs. A missing column is all None."""
        found = resolve(self._table.schema, path)
        if found is None:
            return [None] * len(rows)
        name, fields = found
        values = _take(self._table.column(name), fields, rows)
        return [as_text(value) for value in values] if path == self._text_path else values

    def row(self, index: int) -> dict[str, object] | RowFault:
        """A row as a dict of its projected columns."""
        if self._table.num_columns == 0:
            return {}
        try:
            row: dict[str, object] = self._table.slice(index, 1).to_pylist()[0]
        except UnicodeDecodeError as error:
            return RowFault(reason=f"invalid UTF-8 at byte {error.start}")
        return row


def resolve(schema: pa.Schema, path: str) -> tuple[str, list[str]] | None:
    """Find a dotted path: (top-level column, names of struct fields below it), or None where it does not exist."""
    for head, rest in heads(path):
        index = schema.get_field_index(head)
        if index < 0:
            continue
        fields = _struct_fields(schema.field(index).type, rest)
        if fields is not None:
            return head, fields
    return None


def _struct_fields(kind: pa.DataType, rest: str) -> list[str] | None:
    if not rest:
        return []
    if not pt.is_struct(kind):
        return None
    for head, below in heads(rest):
        index = kind.get_field_index(head)
        fields = _struct_fields(kind.field(index).type, below) if index >= 0 else None
        if fields is not None:
            return [head, *fields]
    return None


def _take(column: pa.ChunkedArray, fields: list[str], rows_N: Int64Array) -> list[object]:
    """Values of rows, chunk by chunk: joining chunks could pass the 2 GiB that 32-bit offsets reach."""
    if column.num_chunks == 1:
        return _values(column.chunk(0), fields, rows_N)
    ends_C = np.cumsum([len(chunk) for chunk in column.chunks])
    chunk_N = np.searchsorted(ends_C, rows_N, side="right")
    values: list[object] = [None] * len(rows_N)
    for index in np.unique(chunk_N).tolist():
        chunk = column.chunk(index)
        places = np.flatnonzero(chunk_N == index)
        first = int(ends_C[index]) - len(chunk)
        for place, value in zip(places.tolist(), _values(chunk, fields, rows_N[places] - first), strict=True):
            values[place] = value
    return values


def _values(chunk: pa.Array, fields: list[str], rows_N: Int64Array) -> list[object]:
    if fields:
        chunk = pc.struct_field(chunk, fields)
    try:
        taken = chunk.take(pa.array(rows_N))
    except pa.ArrowNotImplementedError:  # string views, and whatever holds them
        return [_value(chunk[row]) for row in rows_N.tolist()]
    if pt.is_dictionary(taken.type):
        taken = taken.dictionary_decode()
    try:
        values: list[object] = taken.to_pylist()
    except UnicodeDecodeError:
        return [_value(taken[i]) for i in range(len(taken))]
    return values


def _value(scalar: Any) -> object:
    try:
        value: object = scalar.as_py()
    except UnicodeDecodeError as error:
        return RowFault(reason=f"invalid UTF-8 at byte {error.start}")
    return value
