"""Media of one sample, decoded as a loader does for a batch, and turned back into pictures and sound.

# P = patches, D = numbers of a patch, F = audio frames, A = audio samples, T = video frames, H, W = pixels
"""

from __future__ import annotations

import math
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster_flight.sources.lanes import LaneRows
from loadmaster_flight.spec.media import AudioSpec, MediaSpec, PixelType, VisionSpec
from loadmaster_flight.transforms import Transform
from loadmaster_flight.transforms.media import MediaAccess
from loadmaster_flight.transforms.sample import MediaBuffers, SampleMedia
from loadmaster_flight.wire.media import MediaItem
from loadmaster_flight.wire.schemas import MediaKind

SHEET_COLUMNS = 4
_PIXEL_TYPES: dict[PixelType, type[np.generic]] = {
    PixelType.UINT8: np.uint8,
    PixelType.FLOAT16: np.float16,
    PixelType.BFLOAT16: np.uint16,
}
UInt8Array = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedItem:
    """One image, video or audio clip: its rows of pixel_values (P, D), or its frames of audio (F, hop)."""

    item: MediaItem
    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMedia:
    """All media of a row, in the order of its text.

    Attributes:
        masked: Why decoding failed: in a run the sample keeps its place, with loss 0; None: all is well.
    """

    spec: MediaSpec
    items: tuple[DecodedItem, ...]
    masked: str | None

    def files(self) -> Iterator[tuple[str, DecodedItem]]:
        """Name of the file that shows an item, without its beginning: `image-1.png`."""
        for number, decoded in enumerate(self.items, 1):
            kind = decoded.item.kind
            yield f"{kind.name.lower()}-{number}.{'wav' if kind is MediaKind.AUDIO else 'png'}", decoded

    def write(self, decoded: DecodedItem, path: Path) -> None:
        """Write an item for a person: PNG of an image, a sheet of a video's frames, WAV of audio."""
        if decoded.item.kind is MediaKind.AUDIO:
            assert self.spec.audio is not None, "there is audio where the spec has a section of it"
            _write_wav(decoded, self.spec.audio, path)
            return
        assert self.spec.vision is not None, "there are pictures where the spec has a section of them"
        frames_THW3 = frames_of(decoded, self.spec.vision)
        _write_png(sheet_of(frames_THW3) if decoded.item.kind is MediaKind.VIDEO else frames_THW3[0], path)


def decoded_media(rows: LaneRows, media: SampleMedia, transform: Transform, access: MediaAccess) -> DecodedMedia:
    """Decode all media of the first of some rows, in the buffers that a loader would send."""
    rule = transform.media
    assert rule is not None, "a row has media where its source has"
    pixels = np.zeros(sum(media.patches) * rule.patch_bytes, np.uint8)
    audio = np.zeros(rule.audio_bytes(media.items), np.uint8)
    out = MediaBuffers(units_K=np.arange(len(media.patches)), pixels=pixels, audio=audio)
    reason = transform.fill(rows.block_data, int(rows.rows[0]), media, out, access)
    items = tuple(_items(media, rule.spec, pixels, audio))
    return DecodedMedia(spec=rule.spec, items=items, masked=reason)


def _items(media: SampleMedia, spec: MediaSpec, pixels: UInt8Array, audio: UInt8Array) -> Iterator[DecodedItem]:
    pixels_PD, audio_FA = np.zeros((0, 0), np.uint8), np.zeros((0, 0), np.int16)
    if spec.vision is not None:
        pixels_PD = pixels.view(_PIXEL_TYPES[spec.vision.dtype]).reshape(-1, spec.vision.patch_dim)
    if spec.audio is not None:
        audio_FA = audio.view("<i2").reshape(-1, spec.audio.hop)
    patch = frame = 0
    for item in media.items:
        size = math.prod(item.grid)
        if item.kind is MediaKind.AUDIO:
            yield DecodedItem(item=item, values=audio_FA[frame : frame + size])
            frame += size
        else:
            yield DecodedItem(item=item, values=pixels_PD[patch : patch + size])
            patch += size


def frames_of(decoded: DecodedItem, vision: VisionSpec) -> UInt8Array:
    """Frames of an image (one) or a video from their patches: uint8, RGB, shape (T, H, W, 3)."""
    values_PD = _as_uint8(decoded.values, vision)
    if not vision.is_patches:
        return values_PD.reshape(-1, 3, *vision.size).transpose(0, 2, 3, 1)
    t, h, w = decoded.item.grid
    patch, merge, temporal = vision.patch, vision.merge, vision.temporal
    cells = values_PD.reshape(t, h // merge, w // merge, merge, merge, 3, temporal, patch, patch)
    # group, its frames; row of cells, merged row, pixel row; column of cells, merged column, pixel column; channel
    return cells.transpose(0, 6, 1, 3, 7, 2, 4, 8, 5).reshape(t * temporal, h * patch, w * patch, 3)


def _as_uint8(values_PD: npt.NDArray[Any], vision: VisionSpec) -> UInt8Array:
    """Undo the normalisation of float pixels."""
    if vision.dtype is PixelType.UINT8:
        return np.asarray(values_PD, np.uint8)
    is_short = vision.dtype is PixelType.BFLOAT16
    wide_PD = (values_PD.astype(np.uint32) << 16).view(np.float32) if is_short else values_PD.astype(np.float32)
    by_channel = wide_PD.reshape(len(wide_PD), 3, -1)
    std, mean = (np.array(three, np.float32)[:, np.newaxis] for three in (vision.std, vision.mean))
    levels: UInt8Array = np.rint((by_channel * std + mean) * 255).clip(0, 255).astype(np.uint8)
    return levels.reshape(wide_PD.shape)


def sheet_of(frames_THW3: UInt8Array) -> UInt8Array:
    """All frames of a video in one picture, row by row, white where there are no more."""
    t, height, width, _ = frames_THW3.shape
    columns = min(t, SHEET_COLUMNS)
    rows = -(-t // columns)
    cells = np.full((rows * columns, height, width, 3), 255, np.uint8)
    cells[:t] = frames_THW3
    sheet = cells.reshape(rows, columns, height, width, 3).transpose(0, 2, 1, 3, 4)
    return sheet.reshape(rows * height, columns * width, 3)


def _write_png(picture_HW3: UInt8Array, path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.ascontiguousarray(picture_HW3)).save(path)


def _write_wav(decoded: DecodedItem, audio: AudioSpec, path: Path) -> None:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(audio.rate)
        out.writeframes(decoded.values.astype("<i2").tobytes())
