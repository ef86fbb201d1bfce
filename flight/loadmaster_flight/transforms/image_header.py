"""Size, orientation and colour layout of an image from its header: nothing is decoded and no picture is allocated."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ..sources.blocks import ContentError
from .container_bounds import gif_palette_bytes
from .file_type import FileType, file_type, refused

KNOWN = "JPEG, PNG, WebP and GIF"
_ORIENTATION_TAG = 0x0112
_UPRIGHT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageHeader:
    """What the first bytes of an image say.

    Attributes:
        kind: One of the four that are read.
        height: As stored, before the orientation is applied.
        width: As stored.
        orientation: EXIF orientation, 1 to 8; 1 where there is none or it is out of range.
        num_components: Of a JPEG: 1 grey, 3 colour, 4 CMYK; 0 for others.
        has_adobe_marker: A JPEG that Adobe's software (or one like it) wrote: its CMYK is stored inverted.
    """

    kind: FileType
    height: int
    width: int
    orientation: int = _UPRIGHT
    num_components: int = 0
    has_adobe_marker: bool = False

    @property
    def is_turned(self) -> bool:
        """Whether the orientation swaps height and width."""
        return self.orientation >= 5


def read_header(data: bytes) -> ImageHeader:
    """Read the header of a JPEG, PNG, WebP or GIF.

    Raises:
        ContentError: Another kind of file, or a header that ends early or makes no sense.
    """
    kind = file_type(data)
    if kind not in _READERS:
        raise refused(kind, "an image", KNOWN)
    try:
        return _READERS[kind](data)
    except (struct.error, IndexError) as error:
        raise ContentError(f"truncated {kind} header") from error


def _jpeg(data: bytes) -> ImageHeader:
    height = width = num_components = 0
    orientation, has_adobe_marker = _UPRIGHT, False
    for marker, start, stop in _jpeg_segments(data):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width, num_components = struct.unpack_from(">xHHB", data, start)
        elif marker == 0xE1 and data[start : start + 6] == b"Exif\0\0":
            orientation = exif_orientation(data[start + 6 : stop])
        elif marker == 0xEE and data[start : start + 5] == b"Adobe":
            has_adobe_marker = True
    if not num_components:
        raise ContentError("JPEG without a frame header")
    return ImageHeader(
        kind=FileType.JPEG,
        height=height,
        width=width,
        orientation=orientation,
        num_components=num_components,
        has_adobe_marker=has_adobe_marker,
    )


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, first byte and end of each segment before the pixels."""
    at = 2
    while True:
        while data[at] != 0xFF:  # decoders skip bytes between segments too
            at += 1
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        if marker in (0xDA, 0xD9):
            return
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 1)
        yield marker, at + 3, at + 1 + length
        at += 1 + max(length, 2)


def _png(data: bytes) -> ImageHeader:
    if data[12:16] != b"IHDR":
        raise ContentError("PNG without a header chunk")
    width, height = struct.unpack_from(">II", data, 16)
    return ImageHeader(kind=FileType.PNG, height=height, width=width, orientation=_png_orientation(data))


def _png_orientation(data: bytes) -> int:
    """Of an eXIf chunk before the pixels; a later one is not looked for, as browsers do."""
    at = 8
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if name == b"eXIf":
            return exif_orientation(data[at + 8 : at + 8 + length])
        if name in (b"IDAT", b"IEND"):
            break
        at += 12 + length
    return _UPRIGHT


def _webp(data: bytes) -> ImageHeader:
    (size,) = struct.unpack_from("<I", data, 4)
    if size + 8 > len(data):
        raise ContentError("truncated WebP")
    height, width = _webp_size(data)
    return ImageHeader(kind=FileType.WEBP, height=height, width=width, orientation=_webp_orientation(data))


def _webp_size(data: bytes) -> tuple[int, int]:
    name = data[12:16]
    if name == b"VP8X":
        low = struct.unpack_from("<HBHB", data, 24)
        return (low[2] | low[3] << 16) + 1, (low[0] | low[1] << 16) + 1
    if name == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    if name == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return height & 0x3FFF, width & 0x3FFF
    raise ContentError("WebP without a picture")


def _webp_orientation(data: bytes) -> int:
    if data[12:16] != b"VP8X":
        return _UPRIGHT
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        if name == b"EXIF":
            return exif_orientation(data[at + 8 : at + 8 + length].removeprefix(b"Exif\0\0"))
        at += 8 + length + (length & 1)
    return _UPRIGHT


def _gif(data: bytes) -> ImageHeader:
    """The logical screen, on which the first frame is drawn. A frame that sticks out of it is refused."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    left, top, frame_width, frame_height = _gif_frame(data, 13 + gif_palette_bytes(flags))
    if left + frame_width > width or top + frame_height > height:
        raise ContentError("GIF frame is larger than its screen")
    return ImageHeader(kind=FileType.GIF, height=height, width=width)


def _gif_frame(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of the first frame, behind any extension blocks."""
    while data[at] == 0x21:
        at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    if data[at] != 0x2C:
        raise ContentError("GIF without a picture")
    left, top, width, height = struct.unpack_from("<HHHH", data, at + 1)
    return left, top, width, height


_READERS = {FileType.JPEG: _jpeg, FileType.PNG: _png, FileType.WEBP: _webp, FileType.GIF: _gif}


def exif_orientation(exif: bytes) -> int:
    """The orientation in a TIFF structure, 1 where there is none: broken metadata does not make a picture bad."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return _UPRIGHT
    try:
        (at,) = struct.unpack_from(order + "4xI", exif)
        (num_entries,) = struct.unpack_from(order + "H", exif, at)
        for entry in range(at + 2, at + 2 + 12 * num_entries, 12):
            tag, value = struct.unpack_from(order + "H6xH", exif, entry)
            if tag == _ORIENTATION_TAG:
                return value if 1 <= value <= 8 else _UPRIGHT
    except struct.error:
        pass
    return _UPRIGHT
