"""Small pictures of images, for people."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import simplejpeg

from .decoders import installed_decoders
from .limits import MediaLimits
from .planes import join

MAX_SIDE = 160
QUALITY = 75


class Picture(NamedTuple):
    """A JPEG file and its size."""

    jpeg: bytes
    width: int
    height: int


def thumbnail(data: bytes, limits: MediaLimits) -> Picture:
    """A JPEG of at most `MAX_SIDE` pixels on its longer side, right side up; a smaller image keeps its size.

    Raises:
        ContentError: As `decode_image`.
    """
    decoders = installed_decoders()
    height, width = decoders.image_size(data, limits)
    scale = min(1.0, MAX_SIDE / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    pixels_HWC = np.ascontiguousarray(join(decoders.decode_image(data, size, limits)))
    jpeg: bytes = simplejpeg.encode_jpeg(pixels_HWC, quality=QUALITY, colorspace="RGB")
    return Picture(jpeg, size[1], size[0])
