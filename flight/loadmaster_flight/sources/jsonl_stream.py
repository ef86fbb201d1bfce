"""Compressed JSONL shards (.gz, .zst): read in file order, with restart points and a cache of decompressed blocks."""

from __future__ import annotations

import threading

from .blocks import Block, EndOfShardError
from .cache import BlockCache, BlockKey
from .decompress import Compression, open_pieces
from .files import ShardFile
from .json_block import JsonBlock
from .line_stream import LineBytes, LineStream, RestartPoints

_LINES, _FAULT, _END = b"L", b"F", b"E"


class CompressedJsonlShard:
    """Blocks of one compressed file. Thread-safe; one thread decompresses at a time.

    Reading the blocks in order decompresses once. Going back costs a look into the cache, else decompressing from the
    nearest restart point (.gz) or from the beginning (.zst).
    """

    def __init__(
        self, file: ShardFile, block_bytes: int, compression: Compression, cache: BlockCache | None = None
    ) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._compression = compression
        self._cache = cache
        self._lock = threading.Lock()
        self._stream: LineStream | None = None
        self._points = RestartPoints()
        self._num_blocks: int | None = None

    def num_blocks(self) -> int | None:
        """Known once the end was read."""
        return self._num_blocks

    def read(self, block: int) -> Block:
        with self._lock:
            if self._num_blocks is not None and block >= self._num_blocks:
                raise EndOfShardError
            lines = self._from_cache(block) or self._from_stream(block)
        return JsonBlock(lines.data, is_first=block == 0, fault=lines.fault)

    def _from_stream(self, block: int) -> LineBytes:
        try:
            return self._forward(block)
        except BaseException:
            self._stream = None
            raise

    def _forward(self, block: int) -> LineBytes:
        stream = self._stream_before(block)
        while True:
            at = stream.block
            try:
                lines = stream.next_block()
            except EndOfShardError:
                self._end(at)
                raise
            if lines.fault is not None:
                lines = self._confirmed(at, lines)
            self._to_cache(at, lines)
            self._points.record(stream)
            if at == block:
                return lines

    def _stream_before(self, block: int) -> LineStream:
        if self._stream is None or self._stream.block > block:
            if self._stream is not None:
                self._stream.close()
            self._stream = self._points.nearest(block) or self._from_beginning()
        return self._stream

    def _from_beginning(self) -> LineStream:
        return LineStream(open_pieces(self._file, self._compression), self._block_bytes)

    def _confirmed(self, block: int, lines: LineBytes) -> LineBytes:
        """A fault is believed when a second pass over the same bytes meets it too.

        Raises:
            OSError: The second pass differs: the bytes did not arrive right.
        """
        second = self._points.nearest(block) or self._from_beginning()
        try:
            while second.block < block:
                second.next_block()
            again = second.next_block()
        except EndOfShardError:
            again = LineBytes(data=b"")
        finally:
            second.close()
        if again != lines:
            raise OSError(f"block {block} differs between two reads: {lines.fault}")
        return lines

    def _end(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        if self._cache is not None:
            self._cache.put(self._key(num_blocks), _END)

    def _key(self, block: int) -> BlockKey:
        return BlockKey(uri=self._file.uri, etag=self._file.etag, block_bytes=self._block_bytes, block=block)

    def _to_cache(self, block: int, lines: LineBytes) -> None:
        if self._cache is None:
            return
        if lines.fault is None:
            self._cache.put(self._key(block), _LINES + lines.data)
            return
        reason = lines.fault.encode()
        self._cache.put(self._key(block), _FAULT + len(reason).to_bytes(4, "big") + reason + lines.data)

    def _from_cache(self, block: int) -> LineBytes | None:
        if self._cache is None or (self._stream is not None and self._stream.block == block):
            return None
        kept = self._cache.get(self._key(block))
        if kept is None:
            return None
        if kept[:1] == _END:
            self._num_blocks = block
            raise EndOfShardError
        if kept[:1] == _LINES:
            return LineBytes(data=kept[1:])
        data = 5 + int.from_bytes(kept[1:5], "big")
        return LineBytes(data=kept[data:], fault=kept[5:data].decode())
