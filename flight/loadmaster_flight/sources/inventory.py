"""Freezing a source when a run is created: its shards, lanes and units, with every fault that can be known by then."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..spec.manifest import ShardInfo, SourceManifest, UnitKind
from ..spec.source import SourceFormat, SourceSpec
from ..wire.errors import SourceError, UnavailableError
from .arrow_block import resolve
from .blocks import ContentError, Projection
from .files import FileEntry, FileStore, ShardFile, source_error
from .footers import Footer, Progress, footer_of, for_each, is_arrow_file
from .formats import KNOWN_EXTENSIONS, compression_of, format_of
from .jsonl import num_ranges
from .listing import current_entries, list_source
from .missing import refuse_missing
from .reader import SourceReader

MAX_LANES = 64
SHARDS_PER_LANE = 4
SMALL_SOURCE_BYTES = 4 << 20
"""Of so small a source every row may be looked at before a run starts."""
_FIRST_BYTES = 64


def freeze_source(
    name: str,
    ordinal: int,
    spec: SourceSpec,
    *,
    base_dir: Path,
    shuffle_bytes: int,
    fingerprint: str,
    progress: Progress | None = None,
) -> SourceManifest:
    """List a source's shards and fix everything that its order comes from.

    Lanes are spec.lanes, or as many blocks as shuffle_bytes holds, between 1 and MAX_LANES, at most one per unit. Units
    are shards, or blocks where there are fewer than SHARDS_PER_LANE shards a lane and blocks can be addressed; only
    then all footers are read, otherwise the first shard stands for all. No row is read of a source larger than a few
    MB.

    Args:
        name: The source's name in the run.
        ordinal: Its place among the run's sources.
        base_dir: Where relative paths start.
        shuffle_bytes: Memory for resident blocks of this source.
        fingerprint: SHA-256 (hex) of transform and tokenizer.
        progress: Called with (files done, files in all) while footers are read.

    Raises:
        SourceError: Something that would fail later; names source, field, uri and rule.
    """
    store = FileStore(spec.storage_options, source=name)
    listing = list_source(name, spec, base_dir, store)
    kind = _agree_on_format(name, spec, listing.entries)
    _refuse_empty(name, kind, listing.entries)
    if listing.shards is not None:
        dealt = _deal_folders(spec, listing.shards, listing.read_sizes, shuffle_bytes)
    else:
        dealt = _deal_files(
            spec, kind, [_file(store, name, entry) for entry in listing.entries], shuffle_bytes, progress
        )
    num_units = sum(len(shard.block_sizes or ()) for shard in dealt.shards) if dealt.has_blocks else len(dealt.shards)
    manifest = SourceManifest(
        name=name,
        ordinal=ordinal,
        format=kind,
        lanes=_checked_lanes(name, spec, dealt.lanes, num_units),
        unit_kind=UnitKind.BLOCK if dealt.has_blocks else UnitKind.SHARD,
        block_bytes=spec.block_bytes,
        shards=tuple(dealt.shards),
        fingerprint=fingerprint,
        field_map=listing.field_map,
        excluded=listing.excluded,
    )
    _refuse_no_sample(manifest, spec)
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dealt:
    """Shards as they are frozen, and what is dealt to how many lanes: blocks of them, or whole ones."""

    shards: list[ShardInfo]
    lanes: int
    has_blocks: bool


def _deal_files(
    spec: SourceSpec, kind: SourceFormat, files: list[ShardFile], shuffle_bytes: int, progress: Progress | None
) -> _Dealt:
    lanes = spec.lanes or lanes_within(shuffle_bytes, [_first_block_size(spec, kind, files[0])] * MAX_LANES)
    is_few = len(files) < SHARDS_PER_LANE * lanes
    shards = _describe(kind, files, is_each_looked_at=is_few)
    has_blocks = is_few and all(shard.is_seekable for shard in shards)
    if has_blocks:
        shards, read_sizes = _with_blocks(spec, kind, files, shards, progress)
        lanes = spec.lanes or lanes_within(shuffle_bytes, read_sizes)
        has_blocks = len(shards) < SHARDS_PER_LANE * lanes
    return _Dealt(shards=shards, lanes=lanes, has_blocks=has_blocks)


def _deal_folders(spec: SourceSpec, shards: list[ShardInfo], read_sizes: list[int], shuffle_bytes: int) -> _Dealt:
    lanes = spec.lanes or lanes_within(shuffle_bytes, read_sizes)
    has_blocks = len(shards) < SHARDS_PER_LANE * lanes and all(shard.is_seekable for shard in shards)
    return _Dealt(shards=shards, lanes=lanes, has_blocks=has_blocks)


def lanes_within(shuffle_bytes: int, block_sizes: Iterable[int]) -> int:
    """How many lanes may each stand in a block at once, the largest ones if it must be; 1 to MAX_LANES."""
    largest = itertools.accumulate(sorted(block_sizes, reverse=True)[:MAX_LANES])
    return max(1, sum(total_bytes <= shuffle_bytes for total_bytes in largest))


def check_unchanged(manifest: SourceManifest, spec: SourceSpec) -> None:
    """Compare every shard's size and etag with what was frozen.

    Raises:
        SourceError: A shard is missing or has changed; names it.
    """
    store = FileStore(spec.storage_options, source=manifest.name)
    try:
        now = current_entries(manifest, store)
    except OSError as error:
        raise source_error(manifest.name, str(spec.uris[0]), f"cannot be listed: {error}") from error
    for shard, entry in zip(manifest.shards, now, strict=True):
        if entry is None:
            raise source_error(manifest.name, shard.uri, "was frozen into the run and is missing now; put it back")
        if (entry.size_bytes, entry.etag) != (shard.size_bytes, shard.etag):
            was, got = f"{shard.size_bytes} bytes ({shard.etag})", f"{entry.size_bytes} bytes ({entry.etag})"
            rule = f"must not change while a run uses it: frozen with {was}, got {got}; restore it or create a new run"
            raise source_error(manifest.name, shard.uri, rule)


def shard_files(manifest: SourceManifest, spec: SourceSpec) -> list[ShardFile]:
    """Handles of a frozen source's shards; opens nothing."""
    store = FileStore(spec.storage_options, source=manifest.name)
    return [
        ShardFile(store=store, source=manifest.name, uri=info.uri, size_bytes=info.size_bytes, etag=info.etag)
        for info in manifest.shards
    ]


def _file(store: FileStore, source: str, entry: FileEntry) -> ShardFile:
    return ShardFile(store=store, source=source, uri=entry.uri, size_bytes=entry.size_bytes, etag=entry.etag)


def _agree_on_format(name: str, spec: SourceSpec, entries: list[FileEntry]) -> SourceFormat:
    if spec.format is not SourceFormat.AUTO:
        return spec.format
    first = format_of(entries[0].uri)
    for entry in entries:
        found = format_of(entry.uri)
        if found is None:
            known = ", ".join(KNOWN_EXTENSIONS)
            rule = f"has an extension that tells no format; known are {known}: narrow the glob or give format"
            raise source_error(name, entry.uri, rule)
        if found is not first:
            rule = f"is {found}, but {entries[0].uri} is {first}: a source has one format; make two sources of them"
            raise source_error(name, entry.uri, rule)
    return first or spec.format


def _refuse_empty(name: str, kind: SourceFormat, entries: list[FileEntry]) -> None:
    for entry in entries:
        is_plain = kind is SourceFormat.JSONL and compression_of(entry.uri) is None
        if entry.size_bytes == 0 and not is_plain:
            rule = f"must not be empty: 0 bytes are no {kind} file; write it again or leave it out"
            raise source_error(name, entry.uri, rule)
    if not any(entry.size_bytes for entry in entries):
        raise source_error(
            name, entries[0].uri, "must hold a sample, but every file of the source is empty; write them again"
        )


def _describe(kind: SourceFormat, files: list[ShardFile], *, is_each_looked_at: bool) -> list[ShardInfo]:
    if kind is SourceFormat.ARROW:
        looked_at = files if is_each_looked_at else files[:1]
        seekable = for_each(looked_at, is_arrow_file, None)
        seekable += seekable[:1] * (len(files) - len(looked_at))
    else:
        seekable = [
            kind is SourceFormat.PARQUET or (kind is SourceFormat.JSONL and compression_of(file.uri) is None)
            for file in files
        ]
    return [
        ShardInfo(uri=file.uri, size_bytes=file.size_bytes, etag=file.etag, is_seekable=is_seekable)
        for file, is_seekable in zip(files, seekable, strict=True)
    ]


def _with_blocks(
    spec: SourceSpec, kind: SourceFormat, files: list[ShardFile], shards: list[ShardInfo], progress: Progress | None
) -> tuple[list[ShardInfo], list[int]]:
    """The shards with their blocks, and the bytes of each block in memory."""
    if kind is SourceFormat.JSONL:
        ranged = [shard.model_copy(update={"block_sizes": _ranges(shard, spec.block_bytes)}) for shard in shards]
        num_blocks = sum(len(shard.block_sizes or ()) for shard in ranged)
        return ranged, [spec.block_bytes] * num_blocks
    footers = for_each(files, lambda file: footer_of(file, kind, Projection.of_spec(spec)), progress)
    _refuse_missing_column(spec, files, footers)
    described = [
        shard.model_copy(update={"block_sizes": footer.block_sizes, "num_rows": footer.num_rows})
        for shard, footer in zip(shards, footers, strict=True)
    ]
    return described, [size for footer in footers for size in footer.read_sizes]


def _ranges(shard: ShardInfo, block_bytes: int) -> tuple[int, ...]:
    starts = [index * block_bytes for index in range(num_ranges(shard.size_bytes, block_bytes))]
    return tuple(min(block_bytes, shard.size_bytes - start) for start in starts)


def _first_block_size(spec: SourceSpec, kind: SourceFormat, file: ShardFile) -> int:
    """Bytes of the first shard's largest block in memory, block_bytes where that is not known.

    Also a look at one shard of many: a source that is wrong as a whole must not be found out step by step.
    """
    if kind is SourceFormat.PARQUET or (kind is SourceFormat.ARROW and is_arrow_file(file)):
        return max(footer_of(file, kind, Projection.of_spec(spec)).read_sizes, default=0) or spec.block_bytes
    if kind is SourceFormat.JSONL and compression_of(file.uri) is None:
        _refuse_json_array(file)
    return spec.block_bytes


def _refuse_json_array(file: ShardFile) -> None:
    try:
        first = file.read_at(0, _FIRST_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError as error:
        raise source_error(file.source, file.uri, f"cannot be read: {error}") from error
    if first.startswith(b"["):
        raise source_error(file.source, file.uri, "must hold one JSON object a line, got a JSON array; write it anew")


def _refuse_missing_column(spec: SourceSpec, files: list[ShardFile], footers: list[Footer]) -> None:
    """A path that no shard has is a typing mistake; one that some shards lack is schema drift, and null there."""
    for path in Projection.of_spec(spec).paths or ():
        if any(resolve(footer.schema, path) is not None for footer in footers):
            continue
        refuse_missing(files[0].source, spec, path, footers[0].schema.names, files[0].uri)


def _checked_lanes(name: str, spec: SourceSpec, lanes: int, num_units: int) -> int:
    if num_units == 0:
        raise source_error(name, spec.uris[0], "must hold a sample, but its files have no rows at all; check them")
    if spec.lanes is not None and spec.lanes > num_units:
        rule = f"has {num_units} units to deal to lanes, lanes must be at most that, got {spec.lanes}"
        raise source_error(name, spec.uris[0], rule, field="lanes")
    return min(lanes, num_units)


def _refuse_no_sample(manifest: SourceManifest, spec: SourceSpec) -> None:
    """Exact where footers tell, or where the source is so small that looking costs nothing."""
    counts = [shard.num_rows for shard in manifest.shards]
    is_small = sum(shard.size_bytes for shard in manifest.shards) <= SMALL_SOURCE_BYTES
    has_none = all(count == 0 for count in counts)
    if not has_none and None in counts and is_small:
        has_none = not _has_row(manifest, spec)
    if has_none:
        raise source_error(
            manifest.name, manifest.shards[0].uri, "must hold a sample, but its files have no rows; check them"
        )


def _has_row(manifest: SourceManifest, spec: SourceSpec) -> bool:
    try:
        with SourceReader(manifest, spec) as reader:
            shards = range(len(manifest.shards))
            return any(block.num_rows for shard in shards for block in reader.blocks(shard))
    except (UnavailableError, ContentError) as error:
        raise SourceError(str(error), source=manifest.name) from error
