"""What a source's uris stand for: files, or folders that hold shards by rules of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ..spec.manifest import ShardInfo, SourceManifest
from ..spec.source import SourceFormat, SourceSpec
from .blocks import Projection, heads
from .braces import expand_braces
from .energon import open_dataset
from .files import FileEntry, FileStore, absolute_uri, source_error
from .folder import block_sizes, folder_entry, list_folder, read_rows
from .jsonl import num_ranges
from .mds import STREAMED
from .mds_index import IndexedShard, read_index
from .missing import refuse_missing

IN_FOLDERS = (SourceFormat.FOLDER, SourceFormat.MDS, SourceFormat.ENERGON)
"""Formats whose uris name folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The shards of a source as they are now.

    Attributes:
        shards: Described as far as the folder tells; None where that is found out file by file.
        read_sizes: Bytes of each block in memory, beside `shards`.
        field_map: Field -> member, of Energon datasets.
        excluded: Samples that are left out, of Energon datasets.
    """

    entries: list[FileEntry]
    shards: list[ShardInfo] | None = None
    read_sizes: list[int] = field(default_factory=list)
    field_map: dict[str, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()


def list_source(name: str, spec: SourceSpec, base_dir: Path, store: FileStore) -> Listing:
    """Find the shards.

    Raises:
        SourceError: Something that a uri names is missing, or is not what the format says.
    """
    if spec.format not in IN_FOLDERS:
        return Listing(entries=store.expand(spec.uris, base_dir))
    folders = [absolute_uri(uri, base_dir).rstrip("/") for given in spec.uris for uri in expand_braces(given)]
    twice = next((uri for uri in folders if folders.count(uri) > 1), None)
    if twice is not None:
        raise source_error(name, twice, "must be named once")
    try:
        if spec.format is SourceFormat.FOLDER:
            return _of_folders(name, folders, store)
        return (
            _of_mds(name, spec, folders, store)
            if spec.format is SourceFormat.MDS
            else _of_energon(name, spec, folders, store)
        )
    except (OSError, pa.ArrowException) as error:
        raise source_error(name, folders[0], f"cannot be listed: {error}") from error


def current_entries(manifest: SourceManifest, store: FileStore) -> list[FileEntry | None]:
    """The shards of a frozen source as they are now; None for one that is missing."""
    uris = [shard.uri for shard in manifest.shards]
    if manifest.format is SourceFormat.FOLDER:
        return [folder_entry(store, uri) for uri in uris]
    return store.stat(uris)


def _of_folders(name: str, folders: list[str], store: FileStore) -> Listing:
    entries, shards, read_sizes = list[FileEntry](), list[ShardInfo](), list[int]()
    for uri in folders:
        try:
            files = list_folder(store, uri)
        except FileNotFoundError as error:
            raise source_error(name, uri, "names a folder that does not exist; check the path") from error
        rows = read_rows(store, uri, files)
        sizes = tuple(block_sizes(rows, files))
        entries.append(FileEntry(uri=uri, size_bytes=files.size_bytes, etag=files.etag))
        shards.append(_info(entries[-1], num_rows=len(rows), block_sizes=sizes))
        read_sizes += [sum(len(row.columns) for row in rows) // max(1, len(sizes))] * len(sizes)
    return Listing(entries=entries, shards=shards, read_sizes=read_sizes)


def _of_mds(name: str, spec: SourceSpec, folders: list[str], store: FileStore) -> Listing:
    indexed = [shard for folder in folders for shard in read_index(store, name, folder)]
    if not indexed:
        raise source_error(name, folders[0], "must hold a sample, but index.json names no shard")
    entries = _present(name, [shard.uri for shard in indexed], store)
    for shard, entry in zip(indexed, entries, strict=True):
        if entry.size_bytes != shard.size_bytes:
            rule = (
                f"must have the {shard.size_bytes} bytes that index.json tells, got {entry.size_bytes}; copy it again"
            )
            raise source_error(name, shard.uri, rule)
    _refuse_missing_column(name, spec, indexed)
    blocks = [_mds_blocks(shard, spec.block_bytes) for shard in indexed]
    shards = [
        _info(entry, num_rows=shard.num_rows, block_sizes=sizes, is_seekable=not _is_packed(shard))
        for entry, shard, sizes in zip(entries, indexed, blocks, strict=True)
    ]
    return Listing(entries=entries, shards=shards, read_sizes=[size for sizes in blocks for size in sizes])


def _of_energon(name: str, spec: SourceSpec, folders: list[str], store: FileStore) -> Listing:
    datasets = [open_dataset(store, name, folder, spec.split) for folder in folders]
    for folder, dataset in zip(folders, datasets, strict=True):
        if dataset.field_map != datasets[0].field_map:
            rule = f"must have the field_map of {folders[0]}; make two sources of them"
            raise source_error(name, folder, rule)
    return Listing(
        entries=_present(name, [uri for dataset in datasets for uri in dataset.shards], store),
        field_map=dict(datasets[0].field_map),
        excluded=tuple(key for dataset in datasets for key in dataset.excluded),
    )


def _present(name: str, uris: list[str], store: FileStore) -> list[FileEntry]:
    found = list[FileEntry]()
    for uri, entry in zip(uris, store.stat(uris), strict=True):
        if entry is None:
            raise source_error(name, uri, "is named by its folder and does not exist; copy it again")
        found.append(entry)
    return found


def _info(entry: FileEntry, *, num_rows: int, block_sizes: tuple[int, ...], is_seekable: bool = True) -> ShardInfo:
    return ShardInfo(
        uri=entry.uri,
        size_bytes=entry.size_bytes,
        etag=entry.etag,
        num_rows=num_rows,
        block_sizes=block_sizes,
        is_seekable=is_seekable,
    )


def _is_packed(shard: IndexedShard) -> bool:
    return shard.uri.rpartition(".")[2] in STREAMED


def _mds_blocks(shard: IndexedShard, block_bytes: int) -> tuple[int, ...]:
    if _is_packed(shard):
        return (shard.raw_bytes,)
    starts = (index * block_bytes for index in range(num_ranges(shard.size_bytes, block_bytes)))
    return tuple(min(block_bytes, shard.size_bytes - start) for start in starts)


def _refuse_missing_column(name: str, spec: SourceSpec, indexed: list[IndexedShard]) -> None:
    for path in Projection.of_spec(spec).paths or ():
        above = {head for head, _ in heads(path)}
        if not any(above & set(shard.columns.names) for shard in indexed):
            refuse_missing(name, spec, path, list(indexed[0].columns.names), indexed[0].uri)
