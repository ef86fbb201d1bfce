"""What a batch's schema says of its images and audio: everything that whoever reads them has to know."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .errors import BadRequestError

_VISION, _AUDIO = b"loadmaster.vision", b"loadmaster.audio"
PIXEL_BYTES = {"uint8": 1, "float16": 2, "bfloat16": 2}
"""Bytes of one number of `pixel_values` by dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionFields:
    """How the rows of `pixel_values` are to be read.

    Attributes:
        layout: patches (rows are patches of pictures of any size) or frames (a row is a picture of one size).
        dtype: uint8 (0 to 255, not normalised), float16 or bfloat16 (normalised).
        patch_dim: Numbers of a row.
        merge: Patches of each direction that become one embedding; 1 with layout frames.
        patch: Pixels of a patch's side (layout patches).
        temporal: Frames of a patch (layout patches).
        size: Height and width of a frame (layout frames).
        tokens_per_frame: Placeholders of a frame (layout frames).
        unit_cap: Patches over which an image is cut for several encoders; None: never.
        mean, std: Of red, green and blue in [0, 1], for normalising.
    """

    layout: str
    dtype: str
    patch_dim: int
    merge: int = 1
    patch: int = 1
    temporal: int = 1
    size: tuple[int, int] = (1, 1)
    tokens_per_frame: int = 1
    unit_cap: int | None = None
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of `pixel_values`."""
        return self.patch_dim * PIXEL_BYTES[self.dtype]

    @property
    def dummy_grid(self) -> tuple[int, int, int]:
        """The smallest picture there is: what an encoder without images runs on."""
        return (1, self.merge, self.merge)

    def num_tokens(self, grid: tuple[int, int, int]) -> int:
        """Placeholders, and so embeddings, of an image, a video or a unit of a grid (t, h, w)."""
        patches = math.prod(grid)
        return patches // self.merge**2 if self.layout == "patches" else patches * self.tokens_per_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFields:
    """How the rows of `audio_values` are to be read: int16 samples, `hop` a row, at `rate` a second."""

    rate: int
    hop: int
    merge: int = 1

    def num_tokens(self, num_frames: int) -> int:
        """Placeholders of a clip."""
        return -(-num_frames // self.merge)


def modality_metadata(vision: VisionFields | None, audio: AudioFields | None) -> dict[bytes, bytes]:
    """What `vision_of` and `audio_of` read."""
    fields = {_VISION: vision, _AUDIO: audio}
    return {key: json.dumps(asdict(value)).encode() for key, value in fields.items() if value is not None}


def vision_of(metadata: Mapping[bytes, bytes] | None) -> VisionFields | None:
    """How pixels are to be read, by the schema of a batch; None where it has no images.

    Raises:
        BadRequestError: The metadata is not what `modality_metadata` writes.
    """
    values = _parsed(metadata, _VISION)
    if values is None:
        return None
    values |= {name: tuple(values[name]) for name in ("size", "mean", "std")}
    return VisionFields(**values)


def audio_of(metadata: Mapping[bytes, bytes] | None) -> AudioFields | None:
    """How audio is to be read, by the schema of a batch; None where it has none. Raises like `vision_of`."""
    values = _parsed(metadata, _AUDIO)
    return None if values is None else AudioFields(**values)


def _parsed(metadata: Mapping[bytes, bytes] | None, key: bytes) -> dict[str, Any] | None:
    text = (metadata or {}).get(key)
    if text is None:
        return None
    values = json.loads(text)
    if not isinstance(values, dict):
        raise BadRequestError(f"{key.decode()} of a batch's schema must be a JSON object, got {text[:60]!r}")
    return values
