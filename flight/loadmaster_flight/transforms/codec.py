"""From the bytes of a media item to its grid, its patches and its audio frames, as the run's spec wants them.

# T = frames, H, W = pixels, K = units wanted, P = patches, D = numbers of a patch, A = audio samples
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..sources.blocks import ContentError
from ..spec.media import AudioSpec, MediaSpec, OverMax, PixelType, VisionSpec
from ..wire.media import Grid, unit_grids
from ..wire.schemas import MediaKind
from .decoders import Decoders, Planes, installed_decoders
from .limits import MediaLimits
from .patches import normalised, planes_to_patches, smart_resize
from .planes import split
from .sample import Int64Array, UInt8Array


class LeftOutError(Exception):
    """The item is fine, but the spec says to leave it out; the message is the reason."""


class Codec(Protocol):
    """Opens media items. Any thread may call it, several at once."""

    def probe(self, kind: MediaKind, data: bytes) -> Grid:
        """What an item will be, from its header.

        Raises:
            ContentError: It is broken, or over a limit.
            LeftOutError: It is too large, and the spec says to leave it out.
        """

    def fill_pixels(self, kind: MediaKind, data: bytes, grid: Grid, units_K: Int64Array, out: UInt8Array) -> None:
        """Decode an image or video into patches.

        Args:
            grid: As `probe` told it.
            units_K: Which units of the item are wanted, ascending.
            out: Bytes of these units one after the other, 1-dimensional, all of them are written.

        Raises:
            ContentError: The pixels cannot be decoded.
        """

    def fill_audio(self, data: bytes, grid: Grid, out: UInt8Array) -> None:
        """Decode audio into frames of int16, little endian, the last one filled with silence.

        Raises:
            ContentError: It cannot be decoded.
        """


class MediaCodec:
    """A `Codec` in this process.

    Args:
        spec: What the run makes of media.
        decoders: The functions that open them; the product's own by default.
    """

    def __init__(self, spec: MediaSpec, decoders: Callable[[], Decoders] = installed_decoders) -> None:
        self._spec, self._decoders = spec, decoders
        self._limits = MediaLimits(max_bytes=spec.max_bytes, max_pixels=spec.max_decode_pixels)

    def probe(self, kind: MediaKind, data: bytes) -> Grid:
        """See `Codec`."""
        if kind is MediaKind.AUDIO:
            return self._audio_grid(data)
        if kind is MediaKind.IMAGE:
            return _picture_grid(self.vision, 1, *self._decoders().image_size(data, self._limits))
        info = self._decoders().probe_video(data, self._limits)
        num_groups = len(self._times(info)) // self._frames_per_group
        return _picture_grid(self.vision, num_groups, info.height, info.width)

    def fill_pixels(self, kind: MediaKind, data: bytes, grid: Grid, units_K: Int64Array, out: UInt8Array) -> None:
        """See `Codec`."""
        vision, (_, h, w) = self.vision, grid
        bands = unit_grids(kind, (1, h, w), merge=vision.grid_merge, max_patches=vision.unit_cap)
        edges = np.cumsum([0, *(rows for _, rows, _ in bands)]) * vision.patch
        size = (h * vision.patch, w * vision.patch) if vision.is_patches else vision.size
        groups_K = units_K // len(bands)
        at = 0
        for group, planes in self._groups(kind, data, size, np.unique(groups_K)):
            for unit in units_K[groups_K == group]:
                top, bottom = edges[unit % len(bands)], edges[unit % len(bands) + 1]
                band = planes if len(bands) == 1 else _rows(planes, int(top), int(bottom))
                num_bytes = math.prod(bands[unit % len(bands)]) * vision.patch_dim * vision.item_bytes
                _put(vision, band, out[at : at + num_bytes])
                at += num_bytes
        if at != len(out):
            raise ContentError("fewer frames than its header says")

    def fill_audio(self, data: bytes, grid: Grid, out: UInt8Array) -> None:
        """See `Codec`."""
        audio, wanted = self.audio, out.view("<i2")
        longest = round(audio.max_s * audio.rate)
        samples_A = self._decoders().decode_audio(data, audio.rate, self._limits, longest)
        num = min(len(samples_A), longest, len(wanted))
        wanted[:num] = samples_A[:num]
        wanted[num:] = 0

    @property
    def vision(self) -> VisionSpec:
        assert self._spec.vision is not None, "a run with images or video says what becomes of them"
        return self._spec.vision

    @property
    def audio(self) -> AudioSpec:
        assert self._spec.audio is not None, "a run with audio says what becomes of it"
        return self._spec.audio

    @property
    def _frames_per_group(self) -> int:
        return self.vision.temporal if self.vision.is_patches else 1

    def _audio_grid(self, data: bytes) -> Grid:
        frames = self.audio.num_frames(self._decoders().probe_audio(data, self._limits).duration_s)
        if not frames:
            raise ContentError("audio without samples")
        self._limits.check_samples(frames * self.audio.hop)
        return frames, 1, 1

    def _times(self, info: Any) -> npt.NDArray[np.float64]:
        from .video import chosen_times

        vision = self.vision
        return chosen_times(info, vision.fps, vision.min_frames, vision.max_frames, self._frames_per_group)

    def _groups(
        self, kind: MediaKind, data: bytes, size: tuple[int, int], groups: Int64Array
    ) -> Iterator[tuple[int, Planes]]:
        """Frames of each wanted temporal group as planes, [H, W] of an image and [T, H, W] of a video."""
        if kind is MediaKind.IMAGE:
            yield 0, self._decoders().decode_image(data, size, self._limits)
            return
        num = self._frames_per_group
        times_T = self._times(self._decoders().probe_video(data, self._limits))
        if len(groups) and (groups[-1] + 1) * num > len(times_T):
            raise ContentError("fewer frames than when it was measured")
        wanted_T = times_T.reshape(-1, num)[groups].reshape(-1)
        frames_THWC = self._decoders().decode_video(data, wanted_T, size, self._limits)
        for place, group in enumerate(groups.tolist()):
            yield group, split(frames_THWC[place * num : (place + 1) * num])


def _picture_grid(vision: VisionSpec, t: int, height: int, width: int) -> Grid:
    if not vision.is_patches:
        return t, 1, 1
    rules = (vision.factor, vision.min_pixels, vision.max_pixels)
    cap_pixels = vision.max_patches * vision.patch**2
    new_height, new_width = smart_resize(height, width, *rules)
    num_patches = new_height * new_width // vision.patch**2
    if num_patches > vision.max_patches and vision.over_max is OverMax.RESIZE:
        smaller = (vision.factor, min(vision.min_pixels, cap_pixels), cap_pixels)
        new_height, new_width = smart_resize(height, width, *smaller)
        num_patches = new_height * new_width // vision.patch**2
    if num_patches > vision.max_patches and vision.over_max is not OverMax.SHARD:
        raise LeftOutError(f"{num_patches} patches at once, over media.vision.max_patches {vision.max_patches}")
    return t, new_height // vision.patch, new_width // vision.patch


def _rows(planes: Planes, top: int, bottom: int) -> Planes:
    red, green, blue = (plane[..., top:bottom, :] for plane in planes)
    return red, green, blue


def _put(vision: VisionSpec, planes: Planes, out: UInt8Array) -> None:
    """Write the patches of one unit; with layout frames, of one frame: channel, row, column."""
    if vision.dtype is PixelType.UINT8:
        _put_bytes(vision, planes, out.reshape(-1, vision.patch_dim))
        return
    patches_PD = np.empty((len(out) // vision.item_bytes // vision.patch_dim, vision.patch_dim), np.uint8)
    _put_bytes(vision, planes, patches_PD)
    kind = np.float16 if vision.dtype is PixelType.FLOAT16 else np.uint16
    wanted_PD = out.view(kind).reshape(patches_PD.shape)
    normalised(patches_PD, mean=vision.mean, std=vision.std, dtype=vision.dtype.value, out=wanted_PD)


def _put_bytes(vision: VisionSpec, planes: Planes, out_PD: UInt8Array) -> None:
    if vision.is_patches:
        planes_to_patches(planes, patch=vision.patch, merge=vision.merge, temporal=vision.temporal, out=out_PD)
        return
    for channel, plane in zip(out_PD.reshape(3, *vision.size), planes, strict=True):
        channel[...] = plane
