"""Where the bytes are: file systems by scheme, shards by glob, and handles that tell an I/O error from bad content."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from ..wire.errors import SourceError
from .braces import expand_braces

_S3_OPTIONS = {
    "access_key",
    "anonymous",
    "connect_timeout",
    "endpoint_override",
    "region",
    "request_timeout",
    "scheme",
    "secret_key",
    "session_token",
}
_S3_DEFAULTS = {"connect_timeout": 10, "request_timeout": 60}
_GLOB = "*?["
_LEAST_LISTED = 8
"""Files of a remote folder that are cheaper to find in its listing than to ask for one by one."""
_FOLDERS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file as it is now. `etag` changes when the bytes do: size and time of the last change.

    That is in nanoseconds of local files and in seconds elsewhere: listings may tell more than a file's own headers.
    """

    uri: str
    size_bytes: int
    etag: str


class FileStore:
    """The file systems of one source. Thread-safe.

    Local paths and s3:// go through pyarrow, other schemes through fsspec, which is imported when one is met.
    """

    def __init__(self, storage_options: Mapping[str, Any], *, source: str) -> None:
        self._options = dict(storage_options)
        self._source = source
        self._by_scheme: dict[str, Any] = {}

    def expand(self, uris: tuple[str, ...], base_dir: Path) -> list[FileEntry]:
        """The files that a source's uris name: in the order of the uris, inside a glob sorted by name.

        Raises:
            SourceError: A file is missing, a glob matches nothing, a file is named twice, or the store refuses.
        """
        entries: dict[str, FileEntry] = {}
        for uri in (single for given in uris for single in expand_braces(given)):
            for entry in self._expand_one(absolute_uri(uri, base_dir)):
                if entry.uri in entries:
                    raise self._error(uri, f"must name each file once, but {entry.uri} was named before")
                entries[entry.uri] = entry
        return list(entries.values())

    def stat(self, uris: list[str]) -> list[FileEntry | None]:
        """The files as they are now; None for one that is missing.

        Of a remote store, a folder is listed (a request a thousand files) where several of its files are asked for.
        """
        by_folder: defaultdict[str, list[str]] = defaultdict(list)
        for uri in uris:
            by_folder[uri.rpartition("/")[0] if _is_remote(uri) else ""].append(uri)
        found: dict[str, FileEntry] = {}
        with ThreadPoolExecutor(_FOLDERS_AT_ONCE, thread_name_prefix="list") as pool:
            for entries in pool.map(self._stat_folder, by_folder, by_folder.values()):
                found |= entries
        return [found.get(uri) for uri in uris]

    def open(self, uri: str) -> Any:
        """A random-access handle (pyarrow.NativeFile)."""
        fs, path = self._locate(uri)
        return fs.open_input_file(path)

    def read_whole(self, uri: str) -> bytes:
        """All bytes of a small file."""
        with self.open(uri) as handle:
            return bytes(handle.read())

    def file_type(self, uri: str) -> Any:
        """What is there under a name (pyarrow.fs.FileType); of stores without folders, what is above files is one."""
        fs, path = self._locate(uri)
        return fs.get_file_info(path).type

    def list_files(self, folder: str) -> list[FileEntry]:
        """Every file in and below a folder.

        Raises:
            FileNotFoundError: There is no such folder.
        """
        fs, path = self._locate(folder)
        prefix = folder.removesuffix(path)
        infos = fs.get_file_info(pafs.FileSelector(path, recursive=True))
        return [_entry(prefix + info.path, info) for info in infos if info.type == pafs.FileType.File]

    def _stat_folder(self, folder: str, uris: list[str]) -> dict[str, FileEntry]:
        if folder and len(uris) >= _LEAST_LISTED:
            fs, path = self._locate(folder)
            infos = fs.get_file_info(pafs.FileSelector(path, allow_not_found=True))
            named = {folder.removesuffix(path) + info.path: info for info in infos}
        else:
            places = {uri: self._locate(uri) for uri in uris}
            named = {uri: fs.get_file_info(path) for uri, (fs, path) in places.items()}
        return {uri: _entry(uri, info) for uri, info in named.items() if info.type == pafs.FileType.File}

    def _expand_one(self, uri: str) -> list[FileEntry]:
        try:
            fs, path = self._locate(uri)
            info = fs.get_file_info(path)
            if info.type == pafs.FileType.File:
                return [_entry(uri, info)]
            if info.type == pafs.FileType.Directory:
                raise self._error(uri, "must name files, got a folder; end it with a glob such as /*.parquet")
            if not any(char in path for char in _GLOB):
                raise self._error(uri, "names a file that does not exist; check the path")
            prefix = uri[: len(uri) - len(path)]
            found = [_entry(prefix + info.path, info) for info in _glob(fs, path)]
        except (OSError, pa.ArrowException) as error:
            raise self._error(uri, f"cannot be listed: {error}") from error
        if not found:
            raise self._error(uri, "is a glob that matches no file; check folder and pattern")
        return found

    def _locate(self, uri: str) -> tuple[Any, str]:
        """The file system of a uri, and the path inside it; the path is always the end of the uri."""
        scheme, path = ("", uri) if "://" not in uri else uri.split("://", 1)
        if scheme not in self._by_scheme:
            self._by_scheme[scheme] = self._connect(scheme)
        return self._by_scheme[scheme], path

    def _connect(self, scheme: str) -> Any:
        if scheme == "":
            return pafs.LocalFileSystem()
        if scheme == "s3":
            return self._connect_s3()
        import fsspec

        try:
            fs = fsspec.filesystem(scheme, **self._options)
        except (ImportError, ValueError) as error:
            raise self._error(f"{scheme}://", f"has a scheme that cannot be opened: {error}") from error
        return pafs.PyFileSystem(pafs.FSSpecHandler(fs))

    def _connect_s3(self) -> Any:
        unknown = sorted(set(self._options) - _S3_OPTIONS)
        if unknown:
            field = f"sources.{self._source}.storage_options.{unknown[0]}"
            message = f"source {self._source}: {field} is not an option of s3; there are {sorted(_S3_OPTIONS)}"
            raise SourceError(message, source=self._source, field=field)
        options = {**_S3_DEFAULTS, **self._options}
        endpoint = urlsplit(str(options.get("endpoint_override", "")))
        if endpoint.scheme in {"http", "https"}:
            options |= {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc}
        return pafs.S3FileSystem(**options)

    def _error(self, uri: str, rule: str) -> SourceError:
        return source_error(self._source, uri, rule)


def source_error(source: str, uri: str, rule: str, *, field: str = "uri") -> SourceError:
    """A SourceError that names source, field, uri and rule."""
    path = f"sources.{source}.{field}"
    return SourceError(f"source {source}: {path}: {uri} {rule}", source=source, field=path, uri=uri, rule=rule)


def absolute_uri(uri: str, base_dir: Path) -> str:
    """Local paths made absolute (from `base_dir`), file:// taken off; other schemes as they are."""
    if uri.startswith("file://"):
        uri = uri.removeprefix("file://")
    return uri if "://" in uri else str(base_dir.absolute() / Path(uri).expanduser())


def _entry(uri: str, info: Any) -> FileEntry:
    changed = info.mtime_ns if info.mtime_ns is not None else 0
    if _is_remote(uri):
        changed -= changed % 1_000_000_000
    return FileEntry(uri=uri, size_bytes=int(info.size), etag=f"{info.size}-{changed}")


def _is_remote(uri: str) -> bool:
    return "://" in uri


def _glob(fs: Any, pattern: str) -> list[Any]:
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if any(char in part for char in _GLOB))
    root, rest = "/".join(parts[:fixed]) or "/", parts[fixed:]
    selector = pafs.FileSelector(root, recursive=len(rest) > 1, allow_not_found=True)
    found = [info for info in fs.get_file_info(selector) if info.type == pafs.FileType.File]
    depth = sum(1 for part in parts[:fixed] if part)  # some stores name a path with a leading slash, some without
    fitting = (info for info in found if _matches(info.path.lstrip("/").split("/")[depth:], rest))
    return sorted(fitting, key=lambda info: info.path)


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Shell rules: `*` stays inside a folder, `**` crosses folders, names with a leading dot are not meant."""
    if not pattern:
        return not parts
    is_hidden = bool(parts) and parts[0].startswith(".") and not pattern[0].startswith(".")
    if pattern[0] == "**" and _matches(parts, pattern[1:]):
        return True
    if not parts or is_hidden:
        return False
    if pattern[0] == "**":
        return _matches(parts[1:], pattern)
    return fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


class ObservedFile(io.RawIOBase):
    """A handle that remembers its own I/O error, so that a decoder's failure above it can be told from one."""

    def __init__(self, handle: Any) -> None:
        super().__init__()
        self._handle = handle
        self.io_error: OSError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._handle.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._handle.seek(offset, whence))

    def size(self) -> int:
        return int(self._handle.size())

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._handle.read(None if size is None or size < 0 else size))
        except OSError as error:
            self.io_error = error
            raise

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._handle.close()
        super().close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """A shard's bytes, opened anew for each use and checked against what was frozen."""

    store: FileStore
    source: str
    uri: str
    size_bytes: int
    etag: str

    def open_unmanaged(self) -> Any:
        """A random-access handle (pyarrow.NativeFile) that the caller closes.

        Raises:
            OSError: The store fails or the file is missing.
            SourceError: The file is not the one that the manifest speaks of.
        """
        handle = self.store.open(self.uri)
        found = self._change(int(handle.size()))
        if found is None:
            return handle
        handle.close()
        rule = f"must not change while a run uses it: {self.size_bytes} bytes were frozen, got {found}"
        raise source_error(self.source, self.uri, rule)

    def _change(self, size_bytes: int) -> str | None:
        """What differs from the frozen file. The time of the last change is asked of local files, where it is cheap."""
        if size_bytes != self.size_bytes:
            return f"{size_bytes}"
        now = None if _is_remote(self.uri) else self.store.stat([self.uri])[0]
        return f"as many, changed since ({now.etag})" if now is not None and now.etag != self.etag else None

    @contextmanager
    def open(self) -> Iterator[Any]:
        """`open_unmanaged` for a with statement."""
        handle = self.open_unmanaged()
        try:
            yield handle
        finally:
            handle.close()

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Bytes of a range, cut off at the end of the file."""
        with self.open() as handle:
            return read_range(handle, offset, min(size_bytes, self.size_bytes - offset))


def read_range(handle: Any, offset: int, size_bytes: int) -> bytes:
    """Exactly `size_bytes` from `offset`; fewer are an I/O error."""
    data = bytes(handle.read_at(size_bytes, offset)) if size_bytes > 0 else b""
    if len(data) < size_bytes:
        raise OSError(f"short read: wanted {size_bytes} bytes at {offset}, got {len(data)}")
    return data
