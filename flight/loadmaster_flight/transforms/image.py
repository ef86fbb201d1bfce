"""Images: size from the header, pixels in RGB, right side up. Pure functions; the decoders release the GIL.

# H, W = height, width
"""

from __future__ import annotations

import io

import numpy as np
from PIL import GifImagePlugin, Image, ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from ..sources.blocks import ContentError
from .file_type import FileType
from .image_header import ImageHeader, read_header
from .jpeg import UnsupportedJpegError, decode_jpeg
from .limits import MediaLimits
from .planes import Pixels, Planes, join, padded_pixels, resize, turn

# Opened by name: `Image.open` would try every format that is installed.
_PILLOW: dict[FileType, type[ImageFile.ImageFile]] = {
    FileType.JPEG: JpegImagePlugin.JpegImageFile,
    FileType.PNG: PngImagePlugin.PngImageFile,
    FileType.WEBP: WebPImagePlugin.WebPImageFile,
    FileType.GIF: GifImagePlugin.GifImageFile,
}


def image_size(data: bytes, limits: MediaLimits) -> tuple[int, int]:
    """Height and width as shown, from the header alone.

    Args:
        data: A JPEG, PNG, WebP or GIF file.
        limits: Checked here.

    Raises:
        ContentError: The file is empty, of another type, over a limit, or its header is broken.
    """
    header = _checked_header(data, limits)
    return (header.width, header.height) if header.is_turned else (header.height, header.width)


def decode_image(data: bytes, size: tuple[int, int] | None, limits: MediaLimits) -> Pixels:
    """Decode an image to RGB, right side up.

    Transparent pixels are laid on white, 16-bit ones scaled to 8, and of an animation the first frame is taken.

    Args:
        data: A JPEG, PNG, WebP or GIF file.
        size: Wanted (height, width), as shown; None keeps the image's own. JPEGs are scaled while they are decoded,
            then everything is resized by a bicubic filter. The same bytes and size give the same pixels.
        limits: Checked before anything is decoded.

    Returns:
        uint8 [H, W, 3]; its channels need not be next to each other in memory.

    Raises:
        ContentError: As `image_size`, or the pixels are cut or damaged.
    """
    return join(decode_planes(data, size, limits))


def decode_planes(data: bytes, size: tuple[int, int] | None, limits: MediaLimits) -> Planes:
    """As `decode_image`, but its three channels as they come, without a copy that puts them into one array."""
    header = _checked_header(data, limits)
    stored = size[::-1] if size is not None and header.is_turned else size
    pixels_HWC = _decode(data, header, stored)
    return turn(resize(pixels_HWC, stored or (header.height, header.width)), header.orientation)


def _checked_header(data: bytes, limits: MediaLimits) -> ImageHeader:
    limits.check_bytes(data)
    header = read_header(data)
    limits.check_pixels(header.height, header.width)
    return header


def _decode(data: bytes, header: ImageHeader, size: tuple[int, int] | None) -> Pixels:
    if header.kind is FileType.JPEG:
        try:
            return decode_jpeg(data, header, size)
        except UnsupportedJpegError:
            pass  # Pillow has its own build of the library: what both refuse is bad
    return _decode_with_pillow(data, header)


def _decode_with_pillow(data: bytes, header: ImageHeader) -> Pixels:
    try:
        image: Image.Image = _PILLOW[header.kind](io.BytesIO(data))
        image.load()
        rgb = _to_rgb(image)
    except MemoryError:
        raise
    except Exception as error:  # parsers of formats from the web raise anything
        raise ContentError(_reason(error, header.kind)) from error
    if rgb.size != (header.width, header.height):
        raise ContentError(f"{header.kind} of another size than its header says")
    pixels_HWC = padded_pixels(header.height, header.width)
    pixels_HWC[...] = np.asarray(rgb)
    return pixels_HWC


def _reason(error: Exception, kind: FileType) -> str:
    is_cut = isinstance(error, EOFError) or "truncated" in str(error).lower()
    return f"truncated {kind}" if is_cut else f"damaged {kind}"


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return _scaled_from_16_bits(image).convert("RGB")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        over = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), over).convert("RGB")
    return image.convert("RGB")


def _scaled_from_16_bits(image: Image.Image) -> Image.Image:
    """Pillow's own conversion clips at 255."""
    wide_HW = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((wide_HW * 255 + 32767) // 65535).astype(np.uint8))
