"""Bytes of a media value: embedded ones as they are, files that it names from below the source's root."""

from __future__ import annotations

import os
import posixpath
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future

import pyarrow.fs as pafs

from ..spec.manifest import SourceManifest
from ..spec.source import SourceFormat, SourceSpec
from .attempts import Patience
from .blocks import RowFault
from .files import FileStore, read_range

CACHE_BYTES = 64 << 20
_SHOWN_CHARS = 120
_LONGEST_BYTES, _LONGEST_PART_BYTES = 1000, 255


class MediaFiles:
    """Reads what the media columns of one source name. For any number of threads.

    A name is a path relative to the folder of its shard (of a folder source: to the folder), or to `media_root`. It
    never leads out of that root: not by `..`, nor by a link, nor as an absolute path or address elsewhere. Files read
    last are kept up to a number of bytes, and one that is being read is not read a second time meanwhile.

    Args:
        manifest: The frozen source.
        spec: Its spec: the storage options and the root of media.
        patience: How long I/O errors are borne.
        cache_bytes: Files kept, together.
    """

    def __init__(
        self,
        manifest: SourceManifest,
        spec: SourceSpec,
        *,
        patience: Patience | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._manifest = manifest
        self._media_root = spec.media_root
        self._patience = patience or Patience()
        self._store = FileStore(spec.storage_options, source=manifest.name)
        self._budget_bytes = cache_bytes
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._kept_bytes = 0
        self._reading: dict[str, Future[bytes | RowFault]] = {}

    def read(self, shard: int, value: object, max_bytes: int) -> bytes | RowFault:
        """The bytes that a value stands for.

        Args:
            shard: Index of the shard that the value is from.
            value: bytes, {"bytes": ..., "path": ...} with one of them null, or a path.
            max_bytes: More than these are refused without being read.

        Returns:
            The bytes, or why there are none: always the same reason for the same content.

        Raises:
            UnavailableError: A file does not arrive; names source, shard and file.
        """
        if isinstance(value, RowFault):
            return value
        named = value
        if isinstance(value, Mapping):
            named = value.get("path") if value.get("bytes") is None else value["bytes"]
        if isinstance(named, (bytes, bytearray, memoryview)):
            return _within(bytes(named), max_bytes)
        if not isinstance(named, str):
            return RowFault(reason=f"media must be bytes, {{bytes, path}} or a path, got {_told(value)}")
        root = self._root(shard)
        uri = _address(named, root)
        return uri if isinstance(uri, RowFault) else self._read_once(shard, root, uri, max_bytes)

    def close(self) -> None:
        """End waits and let go of kept files. Idempotent."""
        self._stopped.set()
        with self._lock:
            self._kept.clear()
            self._kept_bytes = 0

    def _root(self, shard: int) -> str:
        if self._media_root is not None:
            return self._media_root.removeprefix("file://").rstrip("/") or "/"
        uri = self._manifest.shards[shard].uri
        return uri.rstrip("/") if self._manifest.format is SourceFormat.FOLDER else uri.rpartition("/")[0]

    def _read_once(self, shard: int, root: str, uri: str, max_bytes: int) -> bytes | RowFault:
        with self._lock:
            kept = self._kept.get(uri)
            if kept is not None:
                self._kept.move_to_end(uri)
                return _within(kept, max_bytes)
            reading, is_mine = self._reading.get(uri), False
            if reading is None:
                reading, is_mine = self._reading.setdefault(uri, Future()), True
        if is_mine:
            self._fulfil(reading, shard, root, uri, max_bytes)
        found = reading.result()
        return found if isinstance(found, RowFault) else _within(found, max_bytes)

    def _fulfil(self, reading: Future[bytes | RowFault], shard: int, root: str, uri: str, max_bytes: int) -> None:
        place = f"source {self._manifest.name}, shard {shard}: media file {uri}"
        try:
            found = self._patience.call(lambda: self._load(root, uri, max_bytes), place=place, stopped=self._stopped)
        except BaseException as error:
            with self._lock:
                del self._reading[uri]
            reading.set_exception(error)
            return
        with self._lock:
            del self._reading[uri]
            if isinstance(found, bytes):
                self._keep(uri, found)
        reading.set_result(found)

    def _keep(self, uri: str, data: bytes) -> None:
        if len(data) > self._budget_bytes or self._stopped.is_set():
            return
        self._kept[uri] = data
        self._kept_bytes += len(data)
        while self._kept_bytes > self._budget_bytes:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def _load(self, root: str, uri: str, max_bytes: int) -> bytes | RowFault:
        """Read a file.

        Raises:
            OSError: It does not arrive, or the root is not there (a store that is not mounted has no files).
        """
        name = uri.removeprefix(root).lstrip("/")[-_SHOWN_CHARS:]
        if "://" not in uri and not _leads_inside(uri, root):
            return RowFault(reason=f"a link leads out of its folder, or nowhere: {name}")
        kind = self._store.file_type(uri)
        if kind is pafs.FileType.NotFound:
            kind = self._look_again(root, uri)
        if kind is not pafs.FileType.File:
            return RowFault(reason=f"file not found: {name}" if kind is pafs.FileType.NotFound else f"no file: {name}")
        with self._store.open(uri) as handle:
            size_bytes = int(handle.size())
            fault = _too_large(size_bytes, max_bytes)
            return fault or read_range(handle, 0, size_bytes)

    def _look_again(self, root: str, uri: str) -> pafs.FileType:
        """A second look, a moment later: what is missing on both is missing."""
        if self._store.file_type(root) is pafs.FileType.NotFound:
            raise FileNotFoundError(f"the folder of media {root} is not there")
        self._stopped.wait(self._patience.first_wait_s)
        return self._store.file_type(uri)


def _address(path: str, root: str) -> str | RowFault:
    """The address of a file below the root, or why there is none."""
    given, path = path[:_SHOWN_CHARS], path.removeprefix("file://")
    if not _is_name(path):
        return RowFault(reason=f"a path must name a file, got {given!r}")
    if ".." in path.split("/"):
        return RowFault(reason=f"a path must not leave its folder: {given}")
    is_whole = path.startswith("/") or "://" in path
    if not is_whole:
        scheme, slashes, folder = root.rpartition("://")
        return f"{scheme}{slashes}{posixpath.normpath(f'{folder}/{path}')}"
    if not _is_below(path, root):
        return RowFault(reason=f"a path must not leave {root} (media_root widens that): {given}")
    return path


def _is_name(path: str) -> bool:
    """Whether a store can be asked for it at all: what no store can have is not an I/O error."""
    try:
        name = path.encode()
    except UnicodeEncodeError:
        return False
    is_short = len(name) <= _LONGEST_BYTES and all(len(part) <= _LONGEST_PART_BYTES for part in name.split(b"/"))
    return is_short and bool(name) and b"\0" not in name


def _leads_inside(uri: str, root: str) -> bool:
    target = os.path.realpath(uri)
    return _is_below(target, os.path.realpath(root)) and not os.path.islink(target)


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


def _within(data: bytes, max_bytes: int) -> bytes | RowFault:
    return _too_large(len(data), max_bytes) or data


def _too_large(size_bytes: int, max_bytes: int) -> RowFault | None:
    if size_bytes <= max_bytes:
        return None
    return RowFault(reason=f"{size_bytes} bytes, media.max_bytes allows {max_bytes}")


def _told(value: object) -> str:
    if isinstance(value, Mapping):
        return "a struct with neither"
    return "null" if value is None else type(value).__name__
