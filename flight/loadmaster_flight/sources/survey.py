"""Counting a source for `loadmaster check`: exactly where footers tell, estimated from samples elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..spec.manifest import SourceManifest
from ..spec.source import SourceFormat, SourceSpec
from .arrow_block import resolve
from .blocks import Projection
from .files import ShardFile
from .footers import Footer, Progress, footer_of, for_each
from .formats import compression_of
from .inventory import shard_files
from .jsonl import num_ranges
from .reader import SourceReader
from .sampling import Count, count_compressed, count_first_blocks

_SAMPLED_SHARDS = 8
_NAMED_SHARDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a source holds.

    Attributes:
        blocks: None where only reading everything would tell.
        num_rows: Rows, good and bad; an estimate where `is_estimate`.
        warnings: What a person should know before starting.
    """

    shards: int
    blocks: int | None
    size_bytes: int
    num_rows: int
    is_estimate: bool
    seconds: float
    warnings: tuple[str, ...]


def survey_source(
    manifest: SourceManifest, spec: SourceSpec, progress: Progress | None = None, *, shuffle_bytes: int | None = None
) -> Survey:
    """Count shards, blocks, bytes and rows.

    Parquet is counted from its footers. Of other formats a few shards are looked at, and the count is exact where
    that was all there is.

    Args:
        manifest: The frozen source.
        spec: Its spec.
        progress: Called with (shards looked at, shards to look at).
        shuffle_bytes: The source's share of memory for resident blocks, to warn where one block is larger.

    Raises:
        SourceError: A shard has no footer or cannot be read; names it.
        UnavailableError: The store does not answer; names source and shard.
    """
    start = time.monotonic()
    files = shard_files(manifest, spec)
    size_bytes = sum(shard.size_bytes for shard in manifest.shards)
    warnings: list[str] = []
    if manifest.format is SourceFormat.PARQUET:
        projection = Projection.of_spec(spec)
        footers = for_each(files, lambda file: footer_of(file, manifest.format, projection), progress)
        counts = [_count_of(footer, file) for footer, file in zip(footers, files, strict=True)]
        blocks: int | None = sum(len(footer.block_sizes) for footer in footers)
        warnings += _drift(files, footers, spec)
        read_sizes = [size for footer in footers for size in footer.read_sizes]
    else:
        counts = _told(manifest) or _sample(manifest, spec, files, progress)
        blocks = _num_blocks(manifest)
        read_sizes = _block_sizes(manifest)
    num_rows, is_estimate = _extrapolate(counts, len(files), size_bytes)
    return Survey(
        shards=len(files),
        blocks=blocks,
        size_bytes=size_bytes,
        num_rows=num_rows,
        is_estimate=is_estimate,
        seconds=time.monotonic() - start,
        warnings=(
            *warnings,
            *_empty_shards(manifest, counts),
            *_unshuffled(manifest),
            *_large_blocks(manifest, read_sizes, shuffle_bytes),
        ),
    )


def _count_of(footer: Footer, file: ShardFile) -> Count:
    return Count(num_rows=footer.num_rows or 0, size_bytes=file.size_bytes, is_whole=True)


def _told(manifest: SourceManifest) -> list[Count]:
    """Counts that were frozen with the shards, as folders tell them; none where one is not known."""
    pairs = [(shard.num_rows, shard.size_bytes) for shard in manifest.shards]
    counts = [Count(num_rows=rows, size_bytes=size, is_whole=True) for rows, size in pairs if rows is not None]
    return counts if len(counts) == len(pairs) else []


def _sample(
    manifest: SourceManifest, spec: SourceSpec, files: list[ShardFile], progress: Progress | None
) -> list[Count]:
    """Counts of shards spread evenly over the source."""
    num = min(_SAMPLED_SHARDS, len(files))
    places = [index * len(files) // num for index in range(num)]
    counts: list[Count] = []
    with SourceReader(manifest, spec) as reader:
        for place in places:
            compression = compression_of(files[place].uri) if manifest.format is SourceFormat.JSONL else None
            if compression is None:
                counts.append(count_first_blocks(reader, manifest, place))
            else:
                counts.append(count_compressed(files[place], compression, manifest.block_bytes))
            if progress is not None:
                progress(len(counts), num)
    return counts


def _extrapolate(counts: list[Count], num_shards: int, size_bytes: int) -> tuple[int, bool]:
    """Rows of the source by rows per byte, and whether that is an estimate."""
    num_rows = sum(count.num_rows for count in counts)
    if len(counts) == num_shards and all(count.is_whole for count in counts):
        return num_rows, False
    seen_bytes = sum(count.size_bytes for count in counts)
    return round(num_rows * size_bytes / max(1, seen_bytes)), True


def _num_blocks(manifest: SourceManifest) -> int | None:
    """Blocks as far as the manifest tells: ranges of a size, or what footers said when the source was frozen."""
    sizes = [shard.block_sizes for shard in manifest.shards]
    if all(size is not None for size in sizes):
        return sum(len(size or ()) for size in sizes)
    is_ranged = manifest.format in (SourceFormat.WEBDATASET, SourceFormat.ENERGON) or all(
        shard.is_seekable for shard in manifest.shards
    )
    if manifest.format is SourceFormat.ARROW or not is_ranged:
        return None
    return sum(num_ranges(shard.size_bytes, manifest.block_bytes) for shard in manifest.shards)


def _drift(files: list[ShardFile], footers: list[Footer], spec: SourceSpec) -> list[str]:
    """Shards that lack a column of the transform: their rows are null there, and skipped."""
    warnings: list[str] = []
    for path in Projection.of_spec(spec).paths or ():
        lacking = [
            file.uri for file, footer in zip(files, footers, strict=True) if resolve(footer.schema, path) is None
        ]
        if lacking:
            warnings.append(f"{len(lacking)} of {len(files)} shards have no column {path!r}: {_named(lacking)}")
    return warnings


def _empty_shards(manifest: SourceManifest, counts: list[Count]) -> list[str]:
    empty = [shard.uri for shard in manifest.shards if shard.size_bytes == 0]
    if len(counts) == len(manifest.shards):
        pairs = zip(manifest.shards, counts, strict=True)
        empty = [shard.uri for shard, count in pairs if count.is_whole and count.num_rows == 0]
    return [f"{len(empty)} shards have no rows: {_named(empty)}"] if empty else []


def _unshuffled(manifest: SourceManifest) -> list[str]:
    is_stream = manifest.format is SourceFormat.JSONL and not manifest.shards[0].is_seekable
    if manifest.lanes > 1 or not is_stream:
        return []
    return ["one lane in file order: rows are not shuffled; split the source into more files, or unpack it"]


def _block_sizes(manifest: SourceManifest) -> list[int]:
    """Bytes of blocks in memory, as far as the manifest tells: of all, or of the largest one of each shard."""
    sizes = [size for shard in manifest.shards for size in shard.block_sizes or ()]
    return sizes or [min(manifest.block_bytes, shard.size_bytes) for shard in manifest.shards]


def _large_blocks(manifest: SourceManifest, block_sizes: list[int], shuffle_bytes: int | None) -> list[str]:
    """Lanes whose blocks together exceed the source's share: memory is what they take, whatever shuffle_bytes says."""
    needed_bytes = sum(sorted(block_sizes, reverse=True)[: manifest.lanes])
    if shuffle_bytes is None or needed_bytes <= shuffle_bytes:
        return []
    lanes = "the block of its one lane" if manifest.lanes == 1 else f"the blocks of its {manifest.lanes} lanes"
    return [
        f"{lanes} may take {needed_bytes} bytes, its share of budgets.shuffle_bytes is {shuffle_bytes}: "
        f"raise shuffle_bytes, or write the files with smaller blocks"
    ]


def _named(uris: list[str]) -> str:
    more = f" and {len(uris) - _NAMED_SHARDS} more" if len(uris) > _NAMED_SHARDS else ""
    return ", ".join(uris[:_NAMED_SHARDS]) + more
