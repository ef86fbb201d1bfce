"""What kind of file some bytes are, by their first ones: decoders are chosen here, never guessed by a library."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ..sources.blocks import ContentError


class FileType(StrEnum):
    """Kinds that are told apart; the names appear in verdicts."""

    JPEG = "JPEG"
    PNG = "PNG"
    WEBP = "WebP"
    GIF = "GIF"
    MP4 = "MP4"
    MATROSKA = "Matroska"
    AVI = "AVI"
    WAV = "WAV"
    FLAC = "FLAC"
    MP3 = "MP3"
    OGG = "Ogg"
    AAC = "AAC"
    TIFF = "TIFF"
    BMP = "BMP"
    AVIF = "AVIF"
    HEIC = "HEIC"
    JPEG_XL = "JPEG XL"
    JPEG_2000 = "JPEG 2000"
    PHOTOSHOP = "Photoshop"
    SVG = "SVG"
    HTML = "HTML"
    PDF = "PDF"
    PLAYLIST = "playlist"
    UNKNOWN = "unknown"


_PREFIXES: tuple[tuple[bytes, FileType], ...] = (
    (b"\xff\xd8\xff", FileType.JPEG),
    (b"\x89PNG\r\n\x1a\n", FileType.PNG),
    (b"GIF87a", FileType.GIF),
    (b"GIF89a", FileType.GIF),
    (b"\x1a\x45\xdf\xa3", FileType.MATROSKA),
    (b"fLaC", FileType.FLAC),
    (b"OggS", FileType.OGG),
    (b"ID3", FileType.MP3),
    (b"II*\0", FileType.TIFF),
    (b"MM\0*", FileType.TIFF),
    (b"BM", FileType.BMP),
    (b"\xff\x0a", FileType.JPEG_XL),
    (b"\0\0\0\x0cJXL ", FileType.JPEG_XL),
    (b"\0\0\0\x0cjP  ", FileType.JPEG_2000),
    (b"8BPS", FileType.PHOTOSHOP),
    (b"%PDF", FileType.PDF),
    (b"#EXTM3U", FileType.PLAYLIST),
    (b"ffconcat", FileType.PLAYLIST),
    (b"<svg", FileType.SVG),
    (b"<!DOCTYPE", FileType.HTML),
    (b"<!doctype", FileType.HTML),
    (b"<html", FileType.HTML),
)
_RIFF: Mapping[bytes, FileType] = {b"WEBP": FileType.WEBP, b"AVI ": FileType.AVI, b"WAVE": FileType.WAV}
_BRANDS: Mapping[bytes, FileType] = {
    b"avif": FileType.AVIF,
    b"avis": FileType.AVIF,
    b"heic": FileType.HEIC,
    b"heix": FileType.HEIC,
    b"mif1": FileType.HEIC,
}
_MOVIE_BOXES = (b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")  # QuickTime files may come without ftyp


def file_type(data: bytes) -> FileType:
    """The kind of a file; UNKNOWN where its first bytes fit none."""
    for prefix, kind in _PREFIXES:
        if data.startswith(prefix):
            return kind
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], FileType.UNKNOWN)
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12], FileType.MP4)
    if data[4:8] in _MOVIE_BOXES:
        return FileType.MP4
    return _mpeg_audio(data)


def _mpeg_audio(data: bytes) -> FileType:
    """MP3 and AAC without a container begin with 11 or 12 set bits; the layer tells which it is (0 is AAC)."""
    if len(data) < 4 or data[0] != 0xFF or data[1] & 0xE0 != 0xE0:
        return FileType.UNKNOWN
    layer = (data[1] >> 1) & 3
    if layer == 0:
        return FileType.AAC if data[1] & 0xF6 == 0xF0 else FileType.UNKNOWN
    return FileType.MP3 if layer == 1 and data[2] & 0xF0 != 0xF0 else FileType.UNKNOWN


def refused(kind: FileType, what: str, known: str) -> ContentError:
    """The error for a file of another kind.

    Args:
        kind: What it is.
        what: What it should have been: "an image".
        known: The kinds that are read: "JPEG, PNG, WebP and GIF".
    """
    found = "not" if kind is FileType.UNKNOWN else f"{kind} file, not"
    return ContentError(f"{found} {what} that is read ({known})")
