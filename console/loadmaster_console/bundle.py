"""The built bundle: what Vite wrote beside this file, and how each file of it is to be sent."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

BUNDLE_DIR = Path(__file__).with_name("bundle")
"""Where `make console` builds to: in a checkout, an editable install and a wheel."""

HASHED = "assets/"
"""Below this, names carry a hash of the content."""
INDEX = "index.html"
_COMPRESSED = ("text/", "application/json", "image/svg")
_HIDDEN = {"manifest.json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledFile:
    """One file, ready to be sent. `gzipped` is empty where compressing does not help."""

    body: bytes
    gzipped: bytes
    content_type: str
    etag: str
    is_immutable: bool


class Bundle:
    """The files of a bundle by their path. Reads each once, and again when it was built anew. Any thread may call it.

    Args:
        folder: Where the bundle is, or will be: it may be missing.
    """

    def __init__(self, folder: Path = BUNDLE_DIR) -> None:
        self._folder = folder
        self._read: dict[str, tuple[int, BundledFile]] = {}
        self._lock = Lock()

    @property
    def is_built(self) -> bool:
        """Whether there is a page to serve."""
        return (self._folder / INDEX).is_file()

    def find(self, path: str) -> BundledFile | None:
        """The file at a path within the bundle, such as "assets/index-3f2a.js"; None where there is none.

        Paths that lead out of the bundle find nothing.
        """
        if path in _HIDDEN or not self._is_within(path):
            return None
        target = self._folder / path
        try:
            changed_ns = target.stat().st_mtime_ns
            with self._lock:
                known = self._read.get(path)
                if known is None or known[0] != changed_ns:
                    known = self._read[path] = (changed_ns, _load(target, is_immutable=path.startswith(HASHED)))
                return known[1]
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def _is_within(self, path: str) -> bool:
        parts = path.split("/")
        return not any(part in {"", ".", ".."} or "\\" in part or "\0" in part for part in parts)


def _load(target: Path, *, is_immutable: bool) -> BundledFile:
    body = target.read_bytes()
    content_type = mimetypes.guess_type(target.name)[0] or "application/octet-stream"
    if target.suffix == ".js":
        content_type = "text/javascript"
    is_text = content_type.startswith(_COMPRESSED)
    return BundledFile(
        body=body,
        gzipped=gzip.compress(body, 9, mtime=0) if is_text else b"",
        content_type=f"{content_type}; charset=utf-8" if is_text else content_type,
        etag=f'"{hashlib.sha256(body).hexdigest()[:20]}"',
        is_immutable=is_immutable,
    )
