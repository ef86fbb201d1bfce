"""A bounded local cache of decompressed blocks: an LRU of files, shared by all processes of a machine."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_LOG = logging.getLogger(__name__)
_SUFFIX = ".block"
_HEAD_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKey:
    """What a cached block is: the file as it was (etag), and the range of it."""

    uri: str
    etag: str
    block_bytes: int
    block: int

    def file_name(self) -> str:
        text = "\0".join((self.uri, self.etag, str(self.block_bytes), str(self.block)))
        return hashlib.sha256(text.encode()).hexdigest() + _SUFFIX


class BlockCache:
    """Files in `folder`, together at most `budget_bytes`. Safe for threads and for several processes.

    Readers take no lock: a file appears whole (renamed into place) and carries a checksum. Writers hold one lock file
    while they evict what was used longest ago and write. A cache that cannot be written is no error: it stays cold.
    """

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder = folder
        self._budget_bytes = budget_bytes
        self._has_complained = False
        self.num_hits = 0
        self.num_misses = 0

    def get(self, key: BlockKey) -> bytes | None:
        """The bytes put under a key, or None; marks them as used."""
        path = self._folder / key.file_name()
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            self.num_misses += 1
            return None
        data = content[_HEAD_BYTES:]
        if zlib.crc32(data).to_bytes(_HEAD_BYTES, "big") != content[:_HEAD_BYTES]:
            path.unlink(missing_ok=True)
            self.num_misses += 1
            return None
        self.num_hits += 1
        return data

    def put(self, key: BlockKey, data: bytes) -> None:
        """Keep bytes, evicting others; what is larger than the budget is not kept."""
        size_bytes = len(data) + _HEAD_BYTES
        if size_bytes > self._budget_bytes:
            return
        path = self._folder / key.file_name()
        try:
            with self._locked():
                if path.exists():
                    return
                self._evict(self._budget_bytes - size_bytes)
                part = path.with_suffix(".part")
                part.write_bytes(zlib.crc32(data).to_bytes(_HEAD_BYTES, "big") + data)
                part.replace(path)
        except OSError as error:
            self._complain(error)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _evict(self, target_bytes: int) -> None:
        """Remove the least recently used files until the others fit, and parts that a killed writer left."""
        files: list[tuple[int, int, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.name.endswith(".part"):
                    os.unlink(entry.path)
                elif entry.name.endswith(_SUFFIX):
                    stat = entry.stat()
                    files.append((stat.st_mtime_ns, stat.st_size, entry.path))
        total_bytes = sum(size_bytes for _, size_bytes, _ in files)
        for _, size_bytes, path in sorted(files):
            if total_bytes <= target_bytes:
                return
            Path(path).unlink(missing_ok=True)
            total_bytes -= size_bytes

    def _complain(self, error: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True
            _LOG.warning("block cache %s cannot be written, reading goes on without it: %s", self._folder, error)
