"""Parquet shards: a block is a row group, only the columns that the transform needs are read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .arrow_block import ArrowBlock
from .attempts import decode_twice
from .blocks import Block, ContentError, FaultBlock, Projection
from .files import ShardFile

_WHOLE_READ_BYTES = 1 << 30
_PIECE_BYTES = 128 << 20
_SMALLER_BATCHES = (1024, 32, 1)


class ParquetShard:
    """Row groups of one file. The footer is read once and kept. Thread-safe."""

    def __init__(self, file: ShardFile, projection: Projection) -> None:
        self._file = file
        self._projection = projection
        self._footer: Any = None
        self._fault: str | None = None

    def num_blocks(self) -> int:
        """Row groups; 1 where the footer cannot be read: the block that says so."""
        footer = self._read_footer()
        return 1 if footer is None else int(footer.num_row_groups)

    def read(self, block: int) -> Block:
        footer = self._read_footer()
        if footer is None:
            return FaultBlock(num_rows=1, reason=f"not a Parquet file: {self._fault}")
        num_rows = int(footer.row_group(block).num_rows)
        try:
            table = decode_twice(self._file, lambda handle: self._decode(handle, block))
        except ContentError as error:
            return FaultBlock(num_rows=num_rows, reason=f"row group cannot be decoded: {error}")
        return ArrowBlock(table, num_rows=num_rows, text_path=self._projection.text_path)

    def _read_footer(self) -> Any:
        if self._footer is None and self._fault is None:
            try:
                self._footer = read_footer(self._file)
            except ContentError as error:
                self._fault = str(error)
        return self._footer

    def _decode(self, handle: Any, block: int) -> pa.Table:
        is_remote = "://" in self._file.uri
        parquet = pq.ParquetFile(handle, metadata=self._footer, pre_buffer=is_remote)
        paths = self._projection.paths
        columns = None if paths is None else [*paths]
        group = self._footer.row_group(block)
        if group.total_byte_size <= _WHOLE_READ_BYTES:
            try:
                return parquet.read_row_group(block, columns=columns, use_threads=False)
            except (pa.ArrowNotImplementedError, pa.ArrowCapacityError):
                pass  # nested columns beyond 2 GiB once decoded: read in pieces
        per_piece = _PIECE_BYTES * max(1, group.num_rows) // max(1, group.total_byte_size)
        return _read_in_pieces(parquet, block, columns, batch_rows=max(1, min(per_piece, 1 << 16)))


def _read_in_pieces(parquet: Any, block: int, columns: list[str] | None, *, batch_rows: int) -> pa.Table:
    """A row group as many small record batches, smaller ones where rows are so long that even those overflow."""
    for rows in (batch_rows, *(size for size in _SMALLER_BATCHES if size < batch_rows)):
        try:
            batches = list(parquet.iter_batches(rows, row_groups=[block], columns=columns, use_threads=False))
            return pa.Table.from_batches(batches, batches[0].schema) if batches else pa.table({})
        except (pa.ArrowNotImplementedError, pa.ArrowCapacityError) as error:
            last = error
    raise last


def read_footer(file: ShardFile) -> Any:
    """The footer (pyarrow.parquet.FileMetaData).

    Raises:
        ContentError: There is none that can be read.
    """
    return decode_twice(file, pq.read_metadata)
