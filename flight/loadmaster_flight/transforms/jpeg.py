"""JPEG through libjpeg-turbo: scaled while it is decoded, and strict, so that a cut file never ends in grey."""

from __future__ import annotations

import re

import numpy as np
import simplejpeg
from PIL import Image

from ..sources.blocks import ContentError
from .image_header import ImageHeader
from .planes import Pixels, padded_pixels

_EXTRANEOUS = re.compile(r"(\d+) extraneous bytes before marker (0x[0-9a-f]{2})")
_MAX_EXTRANEOUS = 16  # what some cameras leave before the end marker; more of them is a damaged scan
_HARMLESS = re.compile(r"(Unknown Adobe color transform|unknown JFIF revision)", re.IGNORECASE)


def decode_jpeg(data: bytes, header: ImageHeader, size: tuple[int, int] | None) -> Pixels:
    """Decode a JPEG of any colour layout.

    Args:
        data: The file.
        header: Its header.
        size: Wanted (height, width) as stored, before the orientation; the result is at least as large where the
            picture is. None decodes all pixels.

    Returns:
        uint8 [H, W, 3], RGB. A power of two or an eighth of the stored size.

    Raises:
        ContentError: The data are cut or damaged, or of a kind of JPEG that libjpeg-turbo does not know.
        UnsupportedJpegError: It is for the other decoder to say.
    """
    if header.num_components == 4:
        return _from_cmyk(_decode(data, "CMYK", header, size), is_inverted=header.has_adobe_marker)
    return _decode(data, "RGB", header, size)


class UnsupportedJpegError(Exception):
    """This decoder does not take the file; that alone does not make it bad."""


def _decode(data: bytes, colorspace: str, header: ImageHeader, size: tuple[int, int] | None) -> Pixels:
    min_height, min_width = size or (0, 0)
    if min_height > header.height or min_width > header.width:
        min_height = min_width = 0  # made larger afterwards; the library would refuse
    num_channels = len(colorspace)
    buffer = padded_pixels(header.height, header.width, num_channels).base

    def run(strict: bool) -> Pixels:
        pixels: Pixels = simplejpeg.decode_jpeg(
            data, colorspace, min_height=min_height, min_width=min_width, min_factor=2, buffer=buffer, strict=strict
        )
        return pixels

    try:
        return run(strict=True)
    except ValueError as error:
        _judge(str(error), error)
    return run(strict=False)


def _judge(message: str, error: ValueError) -> None:
    """Return where the decoder only remarked on something, raise where pixels are missing."""
    if "remature end" in message:
        raise ContentError("truncated JPEG") from error
    extraneous = _EXTRANEOUS.search(message)
    if extraneous is not None:
        is_in_header = int(extraneous[2], 16) >= 0xDB
        if int(extraneous[1]) <= _MAX_EXTRANEOUS or is_in_header:
            return
    if _HARMLESS.search(message):
        return
    if "orrupt JPEG data" in message:
        raise ContentError("damaged JPEG") from error
    raise UnsupportedJpegError(message) from error


def _from_cmyk(pixels_HWK: Pixels, *, is_inverted: bool) -> Pixels:
    """Ink to light. Adobe's software stores 255 for no ink, and everybody else followed."""
    if is_inverted:
        np.subtract(255, pixels_HWK, out=pixels_HWK)
    height, width = pixels_HWK.shape[:2]
    image = Image.frombuffer("CMYK", (width, height), pixels_HWK.tobytes(), "raw", "CMYK", 0, 1)
    pixels_HWC = padded_pixels(height, width)
    pixels_HWC[...] = np.asarray(image.convert("RGB"))
    return pixels_HWC
