"""Whether a container file ends before it says it does: demuxers pass over this in silence."""

from __future__ import annotations

import struct

from .file_type import FileType
from .movie_boxes import boxes

_EBML_HEADER = 0x1A45DFA3
_SEGMENT = 0x18538067
_STREAMED_SIZES = (0, 0xFFFFFFFF)  # a RIFF whose writer could not seek back


def is_cut(data: bytes, kind: FileType) -> bool:
    """Whether bytes are missing at the end, by the sizes that the container's outer parts declare.

    Kinds without such sizes (MP3, AAC, FLAC, Ogg) are never cut by this rule.
    """
    try:
        if kind is FileType.MP4:
            return any(stop > len(data) for _, _, stop in boxes(data, 0, len(data)))
        if kind in (FileType.AVI, FileType.WAV):
            return _is_riff_cut(data)
        if kind is FileType.MATROSKA:
            return _is_matroska_cut(data)
        if kind is FileType.GIF:
            return _is_gif_cut(data)
    except (IndexError, struct.error):
        return True
    return False


def _is_riff_cut(data: bytes) -> bool:
    (size,) = struct.unpack_from("<I", data, 4)
    return size not in _STREAMED_SIZES and size + 8 > len(data)


def _is_matroska_cut(data: bytes) -> bool:
    at = 0
    while at < len(data):
        name, at = _vint(data, at, keeps_marker=True)
        size, at = _vint(data, at, keeps_marker=False)
        if name == _SEGMENT:
            return size is not None and at + size > len(data)
        if name != _EBML_HEADER or size is None:
            return False  # the demuxer will say what is wrong
        at += size
    return True


def _vint(data: bytes, at: int, *, keeps_marker: bool) -> tuple[int | None, int]:
    """An EBML number and where it ends; None for a size that is not known (all bits set)."""
    length = 9 - data[at].bit_length()
    if length > 8 or at + length > len(data):
        raise IndexError
    value = int.from_bytes(data[at : at + length], "big")
    if keeps_marker:
        return value, at + length
    all_set = (1 << 7 * length) - 1
    value &= all_set
    return (None if value == all_set else value), at + length


def _is_gif_cut(data: bytes) -> bool:
    """Walk the blocks to the trailer; a file that stops between two pictures is complete enough."""
    at, num_pictures = 13 + gif_palette_bytes(data[10]), 0
    while at < len(data) and data[at] != 0x3B:
        if data[at] == 0x2C:
            at, num_pictures = at + 11 + gif_palette_bytes(data[at + 9]), num_pictures + 1
        else:
            at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    return num_pictures == 0


def gif_palette_bytes(flags: int) -> int:
    """Size of the colour table that a GIF's flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
