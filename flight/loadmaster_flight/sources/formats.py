"""Which format a shard has, and the reader of it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Protocol

from ..spec.manifest import ShardInfo, SourceManifest
from ..spec.source import SourceFormat, SourceSpec
from .arrow_ipc import ArrowFileShard, ArrowStreamShard
from .blocks import Block, Projection
from .cache import BlockCache
from .decompress import Compression
from .energon_shard import EnergonShard
from .files import ShardFile
from .folder import FolderShard
from .grouping import grouping_of
from .jsonl import JsonlShard
from .jsonl_stream import CompressedJsonlShard
from .mds import MdsShard
from .parquet import ParquetShard
from .webdataset import TarShard

_COMPRESSIONS = {".gz": Compression.GZIP, ".zst": Compression.ZSTD, ".zstd": Compression.ZSTD}
_FORMATS = {
    ".parquet": SourceFormat.PARQUET,
    ".pq": SourceFormat.PARQUET,
    ".jsonl": SourceFormat.JSONL,
    ".jsonlines": SourceFormat.JSONL,
    ".ndjson": SourceFormat.JSONL,
    ".json": SourceFormat.JSONL,
    ".arrow": SourceFormat.ARROW,
    ".arrows": SourceFormat.ARROW,
    ".feather": SourceFormat.ARROW,
    ".ipc": SourceFormat.ARROW,
    ".tar": SourceFormat.WEBDATASET,
}
KNOWN_EXTENSIONS = (*_FORMATS, *(f".jsonl{suffix}" for suffix in _COMPRESSIONS))


class Shard(Protocol):
    """One open file of a source. Thread-safe."""

    def num_blocks(self) -> int | None:
        """Blocks of the file; None while only reading to the end can tell."""

    def read(self, block: int) -> Block:
        """One block.

        Raises:
            EndOfShardError: There is no such block.
            OSError: The bytes do not arrive.
        """


def compression_of(uri: str) -> Compression | None:
    """The compression that a name tells."""
    return _COMPRESSIONS.get(PurePosixPath(uri).suffix.lower())


def format_of(uri: str) -> SourceFormat | None:
    """The format that a name tells; None where it tells none that can be read."""
    path = PurePosixPath(uri)
    if compression_of(uri) is None:
        return _FORMATS.get(path.suffix.lower())
    inner = _FORMATS.get(PurePosixPath(path.stem).suffix.lower())
    return inner if inner is SourceFormat.JSONL else None


def open_shard(
    manifest: SourceManifest, info: ShardInfo, file: ShardFile, spec: SourceSpec, cache: BlockCache | None
) -> Shard:
    """The reader of one shard. Opens nothing yet."""
    projection = Projection.of_spec(spec)
    match manifest.format:
        case SourceFormat.PARQUET:
            return ParquetShard(file, projection)
        case SourceFormat.ARROW:
            return ArrowFileShard(file, projection) if info.is_seekable else ArrowStreamShard(file, projection)
        case SourceFormat.WEBDATASET:
            return TarShard(file, manifest.block_bytes, projection, grouping=grouping_of(spec.group))
        case SourceFormat.ENERGON:
            return EnergonShard(manifest, file, spec, projection)
        case SourceFormat.FOLDER:
            return FolderShard(file)
        case SourceFormat.MDS:
            return MdsShard(file, manifest.block_bytes, projection)
        case SourceFormat.JSONL:
            compression = compression_of(info.uri)
            if compression is None:
                return JsonlShard(file, manifest.block_bytes)
            return CompressedJsonlShard(file, manifest.block_bytes, compression, cache)
    raise AssertionError(f"a frozen source has a format of its own, got {manifest.format}")
