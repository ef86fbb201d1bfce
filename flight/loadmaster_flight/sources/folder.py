"""Folders of media files with captions: a caption file (Hugging Face ImageFolder) or a text file beside each.

A folder with all that lies below it is one shard. Its rows are the rows of its caption files (metadata.jsonl,
metadata.csv, captions.tsv) in the order of their names, or, where there is none, its files without extension in the
order of their names: a.jpg and a.txt are one row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import posixpath
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from .blocks import Block, ContentError, EndOfShardError, RowFault, as_text, value_at
from .files import FileEntry, FileStore, ShardFile, source_error

ROWS_PER_BLOCK = 256
FILE_NAME = "file_name"
_CAPTION_FILES = ("metadata.jsonl", "metadata.csv", "captions.tsv")
_KINDS = {
    "image": ("bmp", "gif", "jpeg", "jpg", "jfif", "png", "tif", "tiff", "webp"),
    "video": ("avi", "m4v", "mkv", "mov", "mp4", "webm"),
    "audio": ("aac", "flac", "m4a", "mp3", "ogg", "opus", "wav"),
}
_KIND_OF = {extension: kind for kind, extensions in _KINDS.items() for extension in extensions}
_READERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFiles:
    """What lies in a folder: size by name, relative to it and sorted; `etag` changes when any of the files does."""

    sizes: Mapping[str, int]
    etag: str

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())


def list_folder(store: FileStore, uri: str) -> FolderFiles:
    """Every file in and below a folder; hidden ones are left out.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    prefix = uri.rstrip("/") + "/"
    named = {entry.uri.removeprefix(prefix): entry for entry in store.list_files(uri)}
    seen = {name: entry for name, entry in sorted(named.items()) if not _is_hidden(name)}
    told = hashlib.sha256("".join(f"{name}\0{entry.etag}\n" for name, entry in seen.items()).encode())
    return FolderFiles(sizes={name: entry.size_bytes for name, entry in seen.items()}, etag=told.hexdigest()[:32])


def folder_entry(store: FileStore, uri: str) -> FileEntry | None:
    """A folder as one shard, as it is now; None where it is missing."""
    try:
        files = list_folder(store, uri)
    except FileNotFoundError:
        return None
    return FileEntry(uri=uri, size_bytes=files.size_bytes, etag=files.etag)


def block_sizes(rows: Sequence[Row], files: FolderFiles) -> list[int]:
    """Bytes of the files of each block's rows, at least 1."""
    totals = [1 + sum(files.sizes.get(name, 0) for name in row.names) for row in rows]
    return [sum(totals[start : start + ROWS_PER_BLOCK]) for start in range(0, len(totals), ROWS_PER_BLOCK)]


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row before its block is read: files that it names, and its columns as JSON or the files that hold them."""

    names: tuple[str, ...] = ()
    columns: bytes = b"{}"
    beside: tuple[str, ...] = ()
    fault: str | None = None


def read_rows(store: FileStore, uri: str, files: FolderFiles) -> list[Row]:
    """The rows of a folder, in order; reads its caption files and nothing else.

    Raises:
        OSError: A caption file does not arrive.
    """
    prefix = uri.rstrip("/") + "/"
    captions = [name for name in files.sizes if posixpath.basename(name) in _CAPTION_FILES]
    if not captions:
        return list(_rows_of_stems(files))
    rows: list[Row] = []
    for name in captions:
        rows += _rows_of_captions(name, store.read_whole(prefix + name))
    return rows


def _rows_of_stems(files: FolderFiles) -> Iterator[Row]:
    stems: dict[str, list[str]] = {}
    for name in files.sizes:
        stems.setdefault(posixpath.splitext(name)[0], []).append(name)
    for names in stems.values():
        media = [name for name in names if _extension(name) in _KIND_OF]
        beside = tuple(name for name in names if _extension(name) not in _KIND_OF)
        kinds = [_KIND_OF[_extension(name)] for name in media]
        if len(set(kinds)) < len(kinds):
            yield Row(names=tuple(media), fault=f"two files of one kind have the same stem: {', '.join(media)}")
        elif media:
            columns = {kind: _media(name) for kind, name in zip(kinds, media, strict=True)}
            yield Row(names=tuple(media), columns=orjson.dumps({FILE_NAME: media[0], **columns}), beside=beside)


def _rows_of_captions(name: str, content: bytes) -> Iterator[Row]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield Row(fault=f"{name}: invalid UTF-8 at byte {error.start}")
        return
    found = _json_rows(text) if name.endswith(".jsonl") else _table_rows(text, is_tabbed=name.endswith(".tsv"))
    folder = posixpath.dirname(name)
    for number, row in enumerate(found, 1):
        yield _caption_row(row, folder) if isinstance(row, dict) else Row(fault=f"{name}: row {number}: {row}")


def _json_rows(text: str) -> Iterator[dict[str, Any] | str]:
    """Objects of JSON lines, or what is wrong with a line."""
    for line in text.split("\n"):
        if line.strip():
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield f"broken JSON line: {error}"
                continue
            yield row if isinstance(row, dict) else f"must be a JSON object, got {type(row).__name__}"


def _table_rows(text: str, *, is_tabbed: bool) -> Iterator[dict[str, Any] | str]:
    """Rows of a CSV or TSV file; a TSV file without a header has the columns file_name and caption."""
    lines = io.StringIO(text, newline="")
    table = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if is_tabbed else csv.reader(lines)
    header: list[str] = []
    while True:
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"broken table: {error}"
            return
        if not cells:
            continue
        if not header:
            header = cells if _is_header(cells) or not is_tabbed else [FILE_NAME, "caption"]
            if header is cells:
                continue
        if len(cells) > len(header):
            yield f"has {len(cells)} cells under {len(header)} columns"
        else:
            yield dict(zip(header, cells, strict=False))


def _is_header(cells: list[str]) -> bool:
    return any(cell == FILE_NAME or cell.endswith(("_file_name", "_file_names")) for cell in cells)


def _caption_row(row: dict[str, Any], folder: str) -> Row:
    """Columns `file_name`, `x_file_name` and `x_file_names` (as in ImageFolder) name files beside the caption file."""
    columns, names = dict(row), list[str]()
    for column, value in row.items():
        is_many = column.endswith("_file_names") and isinstance(value, list)
        given = value if is_many else [value] if column.endswith(FILE_NAME) and isinstance(value, str) else []
        paths = [posixpath.join(folder, name) for name in given if isinstance(name, str)]
        if not paths:
            continue
        names += paths
        if column == FILE_NAME:
            columns[FILE_NAME] = paths[0]
            columns.setdefault(_KIND_OF.get(_extension(paths[0]), "file"), _media(paths[0]))
        else:
            values = [_media(path) for path in paths]
            columns.setdefault(column.rpartition("_file_name")[0], values if is_many else values[0])
    if not names:
        return Row(fault=f"a row of captions must have a {FILE_NAME}, got the columns {', '.join(row)}")
    return Row(names=tuple(names), columns=orjson.dumps(columns))


def _media(name: str) -> dict[str, str | None]:
    return {"bytes": None, "path": name}


def _extension(name: str) -> str:
    return posixpath.splitext(name)[1][1:].lower()


class FolderShard:
    """Rows of one folder, some at a time. What it lists is kept; files are read by whoever resolves their names.

    Thread-safe.
    """

    def __init__(self, file: ShardFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._rows: list[Row] | None = None

    def num_blocks(self) -> int:
        return -(-len(self._listed()) // ROWS_PER_BLOCK)

    def read(self, block: int) -> Block:
        rows = self._listed()[block * ROWS_PER_BLOCK : (block + 1) * ROWS_PER_BLOCK]
        if not rows:
            raise EndOfShardError
        with ThreadPoolExecutor(_READERS, thread_name_prefix="folder") as pool:
            return FolderBlock(list(pool.map(self._read_row, rows)))

    def _listed(self) -> list[Row]:
        with self._lock:
            if self._rows is None:
                files = list_folder(self._file.store, self._file.uri)
                if files.etag != self._file.etag:
                    rule = "must not change while a run uses it: a file in it was added, removed or written anew"
                    raise source_error(self._file.source, self._file.uri, rule)
                self._rows = read_rows(self._file.store, self._file.uri, files)
            return self._rows

    def _read_row(self, row: Row) -> dict[str, object] | RowFault:
        if row.fault is not None:
            return RowFault(reason=row.fault)
        columns: dict[str, object] = orjson.loads(row.columns)
        try:
            return columns | {_extension(name) or name: self._read_beside(name) for name in row.beside}
        except ContentError as error:
            return RowFault(reason=str(error))

    def _read_beside(self, name: str) -> object:
        data = self._file.store.read_whole(f"{self._file.uri.rstrip('/')}/{name}")
        if _extension(name) != "json":
            text = as_text(data)
            if isinstance(text, RowFault):
                raise ContentError(f"{name}: {text.reason}")
            return text
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ContentError(f"{name}: broken JSON: {error}") from error


class FolderBlock:
    """Rows of a folder: names of media files, and captions."""

    def __init__(self, rows: list[dict[str, object] | RowFault]) -> None:
        self._rows = rows
        self.num_rows = len(rows)
        self.size_bytes = sum(len(str(row)) for row in rows)

    def column(self, path: str, rows: npt.NDArray[np.int64]) -> list[object]:
        """Values of a dotted path; media as {"bytes": None, "path": name in the folder}."""
        found = [self._rows[row] for row in rows.tolist()]
        return [row if isinstance(row, RowFault) else value_at(row, path) for row in found]

    def row(self, index: int) -> dict[str, object] | RowFault:
        """A whole row."""
        return self._rows[index]
