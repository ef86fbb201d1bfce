"""Plain JSONL shards: a block is the lines that start in a byte range, so nothing need be scanned to find it."""

from __future__ import annotations

from typing import Any

from .blocks import Block
from .files import ShardFile, read_range
from .json_block import JsonBlock

_FIRST_LOOK_BYTES = 64 << 10
_LONGEST_LOOK_BYTES = 16 << 20


class JsonlShard:
    """Byte ranges of one uncompressed file. Thread-safe."""

    def __init__(self, file: ShardFile, block_bytes: int) -> None:
        self._file = file
        self._block_bytes = block_bytes

    def num_blocks(self) -> int:
        return num_ranges(self._file.size_bytes, self._block_bytes)

    def read(self, block: int) -> Block:
        """The lines whose first byte lies in the block's range; none where one line covers the whole range."""
        start = block * self._block_bytes
        stop = min(start + self._block_bytes, self._file.size_bytes)
        with self._file.open() as handle:
            data = _from_line_start(handle, start, stop)
            if data and not data.endswith(b"\n"):
                data += _rest_of_line(handle, stop, self._file.size_bytes)
        return JsonBlock(data, is_first=block == 0)


def num_ranges(size_bytes: int, block_bytes: int) -> int:
    """How many ranges of `block_bytes` cover a file."""
    return -(-size_bytes // block_bytes)


def _from_line_start(handle: Any, start: int, stop: int) -> bytes:
    """Bytes of the range from the first line that starts in it: after the newline at or behind start - 1."""
    if start == 0:
        return read_range(handle, 0, stop)
    data = read_range(handle, start - 1, stop - start + 1)
    newline = data.find(b"\n")
    return b"" if newline < 0 else data[newline + 1 :]


def _rest_of_line(handle: Any, offset: int, size_bytes: int) -> bytes:
    """Bytes from `offset` to the end of the line, newline included; looks double, so a long line costs few reads."""
    pieces: list[bytes] = []
    look = _FIRST_LOOK_BYTES
    while offset < size_bytes:
        piece = read_range(handle, offset, min(look, size_bytes - offset))
        newline = piece.find(b"\n")
        if newline >= 0:
            pieces.append(piece[: newline + 1])
            break
        pieces.append(piece)
        offset += len(piece)
        look = min(2 * look, _LONGEST_LOOK_BYTES)
    return b"".join(pieces)
