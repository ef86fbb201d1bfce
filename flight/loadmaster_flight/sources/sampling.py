"""How many rows a shard has, judged by its beginning."""

from __future__ import annotations

from dataclasses import dataclass

from ..spec.manifest import SourceManifest
from ..spec.source import SourceFormat
from .blocks import EndOfShardError
from .decompress import Compression, open_pieces
from .files import ShardFile, source_error
from .json_block import JsonBlock
from .line_stream import LineStream
from .reader import SourceReader

_SAMPLED_BYTES = 4 << 20
_SAMPLED_PACKED_BYTES = 512 << 10  # fewer say little: decoders take their input in larger pieces
_MOST_SAMPLED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Rows found in `size_bytes` of a shard, about; exact where that is the whole shard."""

    num_rows: int
    size_bytes: int
    is_whole: bool


def count_first_blocks(reader: SourceReader, manifest: SourceManifest, shard: int) -> Count:
    """Read blocks in file order until enough bytes were seen; Arrow files to their end, for an exact count."""
    info = manifest.shards[shard]
    is_exact = manifest.format is SourceFormat.ARROW and info.is_seekable
    num_rows, seen_bytes, block = 0, 0, 0
    try:
        while reader.num_blocks(shard) is None or block < (reader.num_blocks(shard) or 0):
            if seen_bytes >= _SAMPLED_BYTES and not is_exact:
                return Count(num_rows=num_rows, size_bytes=seen_bytes, is_whole=False)
            data = reader.read_block(shard, block)
            num_rows += data.num_rows
            block += 1
            seen_bytes += data.size_bytes if manifest.format is SourceFormat.ARROW else manifest.block_bytes
    except EndOfShardError:
        pass
    return Count(num_rows=num_rows, size_bytes=info.size_bytes, is_whole=True)


def count_compressed(file: ShardFile, compression: Compression, block_bytes: int) -> Count:
    """Decompress the beginning of a shard and relate its rows to the compressed bytes that they took.

    Raises:
        SourceError: The file cannot be read; names it.
    """
    try:
        pieces = open_pieces(file, compression)
        try:
            return _count_lines(LineStream(pieces, block_bytes), file)
        finally:
            pieces.close()
    except OSError as error:
        raise source_error(file.source, file.uri, f"cannot be read: {error}") from error


def _count_lines(stream: LineStream, file: ShardFile) -> Count:
    num_rows, seen_bytes = 0, 0
    try:
        while not _has_enough(seen_bytes, stream.consumed_bytes()):
            lines = stream.next_block()
            num_rows += JsonBlock(lines.data, is_first=stream.block == 1, fault=lines.fault).num_rows
            seen_bytes += len(lines.data)
    except EndOfShardError:
        return Count(num_rows=num_rows, size_bytes=file.size_bytes, is_whole=True)
    return Count(num_rows=num_rows, size_bytes=min(stream.consumed_bytes(), file.size_bytes), is_whole=False)


def _has_enough(seen_bytes: int, packed_bytes: int) -> bool:
    is_enough = seen_bytes >= _SAMPLED_BYTES and packed_bytes >= _SAMPLED_PACKED_BYTES
    return is_enough or seen_bytes >= _MOST_SAMPLED_BYTES
