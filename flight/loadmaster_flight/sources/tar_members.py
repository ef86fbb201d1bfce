"""Headers of tar members, read by offset: nothing is extracted, links and devices are only named."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .blocks import ContentError
from .files import read_range

RECORD_BYTES = 512
_WINDOW_BYTES = 1 << 20
_LONGEST_EXTENSION_BYTES = 1 << 20
_LONG_NAME, _PAX = (tarfile.GNUTYPE_LONGNAME,), (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENSIONS = (*_LONG_NAME, *_PAX, tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE)


class MemberKind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    DEVICE = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class TarMember:
    """One member. Offsets are of the archive: its first header, its content, the next member's first header."""

    name: str
    kind: MemberKind
    size_bytes: int
    offset: int
    data_offset: int
    next_offset: int


class Window:
    """Ranges of a file, read ahead in aligned windows: headers are small and close to each other. Not thread-safe."""

    def __init__(self, handle: Any, size_bytes: int) -> None:
        self._handle = handle
        self.size_bytes = size_bytes
        self._start = 0
        self._data = b""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Bytes from `offset`; fewer than asked for only at the end of the file."""
        size_bytes = max(0, min(size_bytes, self.size_bytes - offset))
        if size_bytes > _WINDOW_BYTES:
            return read_range(self._handle, offset, size_bytes)
        if not self._start <= offset <= offset + size_bytes <= self._start + len(self._data):
            self._start = offset
            self._data = read_range(self._handle, offset, min(_WINDOW_BYTES, self.size_bytes - offset))
        return self._data[offset - self._start : offset - self._start + size_bytes]


def read_member(window: Window, offset: int) -> TarMember | None:
    """The member whose first header is at `offset`; None at the end mark.

    Raises:
        ContentError: The archive is cut inside a header, ends without an end mark, or the header is corrupt.
    """
    start, extended = offset, _Extended()
    while True:
        info = _header(window, offset)
        if info is None:
            return None
        data_offset = offset + RECORD_BYTES
        if info.type not in _EXTENSIONS:
            return _member(info, extended, start=start, data_offset=data_offset)
        extended = _extend(extended, info, window, data_offset)
        offset = data_offset + _padded(info.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extended:
    """What extension headers say of the member behind them."""

    name: str | None = None
    size_bytes: int | None = None


def _header(window: Window, offset: int) -> tarfile.TarInfo | None:
    record = window.read(offset, RECORD_BYTES)
    if len(record) < RECORD_BYTES:
        raise ContentError(f"cut archive: {window.size_bytes} bytes end without an end mark")
    try:
        return tarfile.TarInfo.frombuf(record, "utf-8", "replace")
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
        return None
    except tarfile.HeaderError as error:
        raise ContentError(f"corrupt archive: no tar header at byte {offset}: {error}") from error


def _extend(extended: _Extended, info: tarfile.TarInfo, window: Window, data_offset: int) -> _Extended:
    if info.size > _LONGEST_EXTENSION_BYTES:
        raise ContentError(f"corrupt archive: a header of {info.size} bytes at byte {data_offset}")
    body = window.read(data_offset, info.size)
    if len(body) < info.size:
        raise ContentError("cut archive: it ends inside a header")
    if info.type in _LONG_NAME:
        return _Extended(name=body.rstrip(b"\0").decode(errors="replace"), size_bytes=extended.size_bytes)
    if info.type not in _PAX:
        return extended
    records = _pax_records(body)
    size = records.get("size", "")
    return _Extended(
        name=records.get("path", extended.name), size_bytes=int(size) if size.isdecimal() else extended.size_bytes
    )


def _pax_records(body: bytes) -> dict[str, str]:
    """Records of the form `length key=value\\n`, where length counts the whole record."""
    records: dict[str, str] = {}
    while body:
        digits, _, _ = body.partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        if not 0 < length <= len(body):
            raise ContentError("corrupt archive: a pax header whose lengths do not add up")
        key, _, value = body[len(digits) + 1 : length - 1].partition(b"=")
        records[key.decode(errors="replace")] = value.decode(errors="replace")
        body = body[length:]
    return records


def _member(info: tarfile.TarInfo, extended: _Extended, *, start: int, data_offset: int) -> TarMember:
    if info.type == tarfile.GNUTYPE_SPARSE:
        raise ContentError(f"sparse member {info.name} is not supported; pack the archive without --sparse")
    kind = _kind(info)
    size_bytes = info.size if extended.size_bytes is None else extended.size_bytes
    stored_bytes = size_bytes if kind is MemberKind.FILE else 0
    return TarMember(
        name=extended.name or info.name,
        kind=kind,
        size_bytes=stored_bytes,
        offset=start,
        data_offset=data_offset,
        next_offset=data_offset + _padded(stored_bytes),
    )


def _kind(info: tarfile.TarInfo) -> MemberKind:
    if info.isdir():
        return MemberKind.FOLDER
    if info.issym() or info.islnk():
        return MemberKind.LINK
    return MemberKind.DEVICE if info.isdev() else MemberKind.FILE


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // RECORD_BYTES) * RECORD_BYTES
