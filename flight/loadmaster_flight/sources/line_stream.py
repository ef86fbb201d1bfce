"""Cutting a stream of decompressed bytes into blocks of whole lines, with places to restart from."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import ContentError, EndOfShardError
from .decompress import PieceStream

_MAX_POINTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBytes:
    """Whole lines of a block, and the fault that ends the shard behind them."""

    data: bytes
    fault: str | None = None


class LineStream:
    """Blocks in order: block k holds the lines whose first byte lies in [k * block_bytes, (k + 1) * block_bytes).

    Not thread-safe.

    Attributes:
        block: Number of the block that `next_block` returns next.
    """

    def __init__(self, pieces: PieceStream, block_bytes: int) -> None:
        self._pieces = pieces
        self._block_bytes = block_bytes
        self._buffer = bytearray()
        self._line_start = 0  # offset of the buffer's first byte, always the start of a line
        self._is_over = False
        self.block = 0

    def next_block(self) -> LineBytes:
        """The next block; empty where a line covers its whole range.

        Raises:
            EndOfShardError: All lines were returned.
            OSError: The bytes do not arrive; the stream cannot be used any more.
        """
        stop = (self.block + 1) * self._block_bytes - self._line_start
        fault = None
        try:
            end = self._find_end(stop) if stop > 0 else 0
        except ContentError as error:
            self._is_over, fault = True, str(error)
            end = self._buffer.rfind(b"\n") + 1
        if fault is None and not self._buffer and self._is_over:
            raise EndOfShardError
        data = bytes(self._buffer[:end])
        del self._buffer[: len(self._buffer) if fault else end]
        self._line_start += end
        self.block += 1
        return LineBytes(data=data, fault=fault)

    def snapshot(self) -> LineStream | None:
        """A copy that goes on from the next block, where the compression allows one."""
        pieces = self._pieces.snapshot()
        if pieces is None:
            return None
        copy = LineStream(pieces, self._block_bytes)
        copy._buffer, copy._line_start = bytearray(self._buffer), self._line_start
        copy._is_over, copy.block = self._is_over, self.block
        return copy

    def consumed_bytes(self) -> int:
        """Compressed bytes behind the blocks returned so far, about."""
        return self._pieces.consumed_bytes()

    def close(self) -> None:
        """Let go of the file."""
        self._pieces.close()

    def _find_end(self, stop: int) -> int:
        """Where the last line that starts before `stop` ends in the buffer."""
        searched = stop - 1
        while True:
            newline = self._buffer.find(b"\n", searched)
            if newline >= 0:
                return newline + 1
            searched = max(searched, len(self._buffer))
            if not self._read_piece():
                return len(self._buffer)

    def _read_piece(self) -> bool:
        piece = b"" if self._is_over else self._pieces.next_piece()
        self._is_over = not piece
        self._buffer += piece
        return bool(piece)


class RestartPoints:
    """Snapshots of a line stream, at most a few and evenly spread: where there are too many, every second one goes."""

    def __init__(self) -> None:
        self._points: dict[int, LineStream] = {}
        self._stride = 1

    def record(self, stream: LineStream) -> None:
        """Keep where the stream stands, if its block is due."""
        if stream.block % self._stride or stream.block in self._points:
            return
        point = stream.snapshot()
        if point is None:
            return
        self._points[stream.block] = point
        if len(self._points) > _MAX_POINTS:
            self._stride *= 2
            self._points = {block: kept for block, kept in self._points.items() if block % self._stride == 0}

    def nearest(self, block: int) -> LineStream | None:
        """A stream that stands at or before `block`, the closest one; None where only the beginning is left."""
        before = [known for known in self._points if known <= block]
        return self._points[max(before)].snapshot() if before else None
