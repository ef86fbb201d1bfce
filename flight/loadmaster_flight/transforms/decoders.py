"""Which functions open media: one place to look them up, so that another decoder can take the place of one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .limits import MediaLimits

Size = tuple[int, int]
Planes = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoders:
    """Pure functions of an item's bytes; each is described where it is defined. Any thread may call them."""

    image_size: Callable[[bytes, MediaLimits], Size]
    decode_image: Callable[[bytes, Size | None, MediaLimits], Planes]
    probe_video: Callable[[bytes, MediaLimits], Any]
    decode_video: Callable[[bytes, npt.NDArray[np.float64], Size | None, MediaLimits], npt.NDArray[np.uint8]]
    probe_audio: Callable[[bytes, MediaLimits], Any]
    decode_audio: Callable[[bytes, int, MediaLimits, int | None], npt.NDArray[np.int16]]


_chosen: list[Decoders] = []


def use_decoders(decoders: Decoders) -> None:
    """Have this process open media with other functions from now on."""
    _chosen[:] = [decoders]


def installed_decoders() -> Decoders:
    """The decoders of this process: those of `use_decoders`, else the product's own."""
    return _chosen[0] if _chosen else _own_decoders()


@functools.cache
def _own_decoders() -> Decoders:
    """Imported when media are met first: a run of text alone needs none of them."""
    from . import audio, image, video

    return Decoders(
        image_size=image.image_size,
        decode_image=image.decode_planes,
        probe_video=video.probe_video,
        decode_video=video.decode_video,
        probe_audio=audio.probe_audio,
        decode_audio=audio.decode_audio,
    )
