"""Arrow IPC shards: the file format (a block is a record batch, any order) and the stream format (in order)."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from ..wire.errors import SourceError
from .arrow_block import ArrowBlock, resolve
from .attempts import decode_twice
from .blocks import Block, ContentError, EndOfShardError, FaultBlock, Projection
from .files import ObservedFile, ShardFile, source_error

FILE_MAGIC = b"ARROW1"


class ArrowFileShard:
    """Record batches of a file with a footer. Thread-safe."""

    def __init__(self, file: ShardFile, projection: Projection) -> None:
        self._file = file
        self._projection = projection
        self._num_batches: int | None = None
        self._fault: str | None = None

    def num_blocks(self) -> int:
        """Record batches; 1 where the footer cannot be read: the block that says so."""
        if self._num_batches is None:
            try:
                self._num_batches = count_batches(self._file)
            except ContentError as error:
                if _is_stream(self._file):
                    raise _other_form(self._file, "stream", "file") from error
                self._num_batches, self._fault = 1, f"not an Arrow file: {error}"
        return self._num_batches

    def read(self, block: int) -> Block:
        if block >= self.num_blocks():
            raise EndOfShardError
        if self._fault is not None:
            return FaultBlock(num_rows=1, reason=self._fault)
        try:
            batch = decode_twice(self._file, lambda handle: self._decode(handle, block))
        except ContentError as error:
            return FaultBlock(num_rows=1, reason=f"record batch cannot be decoded: {error}")
        return _as_block(batch, self._projection)

    def _decode(self, handle: Any, block: int) -> pa.RecordBatch:
        schema = pa.ipc.open_file(handle).schema
        handle.seek(0)
        return pa.ipc.open_file(handle, options=_options(schema, self._projection)).get_batch(block)


class ArrowStreamShard:
    """Record batches of a stream without footer, in order; going back reads from the beginning. Thread-safe."""

    def __init__(self, file: ShardFile, projection: Projection) -> None:
        self._file = file
        self._projection = projection
        self._lock = threading.Lock()
        self._reader: _BatchStream | None = None
        self._num_blocks: int | None = None

    def num_blocks(self) -> int | None:
        """Known once the end was read."""
        return self._num_blocks

    def read(self, block: int) -> Block:
        with self._lock:
            if self._num_blocks is not None and block >= self._num_blocks:
                raise EndOfShardError
            try:
                return self._read(block)
            except EndOfShardError:
                raise
            except ContentError:
                self._reader = None
            except BaseException:
                self._reader = None
                raise
            return self._read_again(block)

    def _read(self, block: int) -> Block:
        if self._reader is None or self._reader.block > block:
            self._reader = _BatchStream(self._file, self._projection)
        while True:
            try:
                batch = self._reader.next_batch()
            except StopIteration:
                self._num_blocks = self._reader.block
                raise EndOfShardError from None
            if self._reader.block == block + 1:
                return _as_block(batch, self._projection)

    def _read_again(self, block: int) -> Block:
        """The second try on the same bytes: a fault at the same place ends the shard with one row that says so."""
        try:
            return self._read(block)
        except ContentError as error:
            if self._file.read_at(0, len(FILE_MAGIC)) == FILE_MAGIC:
                raise _other_form(self._file, "file", "stream") from error
            failed_at, self._reader = self._reader.block if self._reader else 0, None
            self._num_blocks = failed_at + 1
            if failed_at != block:
                raise EndOfShardError from error
            return FaultBlock(num_rows=1, reason=str(error))


class _BatchStream:
    """An open stream. One that stops between two messages is whole: the format lets writers leave the end mark out."""

    def __init__(self, file: ShardFile, projection: Projection) -> None:
        self._observed = ObservedFile(file.open_unmanaged())
        self._source = pa.PythonFile(self._observed, mode="r")
        self._projection = projection
        self._reader: Any = None
        self.block = 0

    def next_batch(self) -> pa.RecordBatch:
        try:
            if self._reader is None:
                schema = pa.ipc.open_stream(self._source).schema
                self._source.seek(0)
                self._reader = pa.ipc.open_stream(self._source, options=_options(schema, self._projection))
            batch = self._reader.read_next_batch()
        except (pa.ArrowException, OSError) as error:
            if self._observed.io_error is not None:
                raise self._observed.io_error from error
            raise ContentError(f"cut archive: {' '.join(str(error).split())[:300]}") from error
        self.block += 1
        return batch


def count_batches(file: ShardFile) -> int:
    """Record batches of a file, from its footer.

    Raises:
        ContentError: There is no footer that can be read.
    """
    return decode_twice(file, lambda handle: int(pa.ipc.open_file(handle).num_record_batches))


def _is_stream(file: ShardFile) -> bool:
    try:
        decode_twice(file, lambda handle: pa.ipc.open_stream(handle).schema)
    except ContentError:
        return False
    return True


def _other_form(file: ShardFile, form: str, expected: str) -> SourceError:
    rule = f"is an Arrow {form}, the source's first shard is an Arrow {expected}: make two sources of them"
    return source_error(file.source, file.uri, rule)


def _options(schema: pa.Schema, projection: Projection) -> pa.ipc.IpcReadOptions:
    """Read only the top-level columns that are asked for; the first one where none of them exists, to count rows."""
    if projection.paths is None:
        return pa.ipc.IpcReadOptions(use_threads=False)
    found = [resolve(schema, path) for path in projection.paths]
    fields = sorted({schema.get_field_index(each[0]) for each in found if each is not None})
    return pa.ipc.IpcReadOptions(included_fields=fields or [0][: len(schema)], use_threads=False)


def _as_block(batch: pa.RecordBatch, projection: Projection) -> Block:
    table = pa.Table.from_batches([batch])
    return ArrowBlock(table, num_rows=batch.num_rows, text_path=projection.text_path)
