"""How images, video and audio become what encoders take; one form for all sources of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from .model import SpecModel, refuse

TokenName = str | Annotated[int, Field(ge=0)]
"""Text of a token of the tokenizer, or its id."""
Triple = tuple[float, float, float]


class VisionLayout(StrEnum):
    """patches: any size, as rows of patches (the convention of Qwen2-VL). frames: pictures of one fixed size."""

    PATCHES = "patches"
    FRAMES = "frames"


class OverMax(StrEnum):
    """An image of more than max_patches: made smaller, left out and counted, or cut into bands for several encoders."""

    RESIZE = "resize"
    SKIP = "skip"
    SHARD = "shard"


class PixelType(StrEnum):
    """uint8 is as decoded, to be normalised on the device; the others are normalised by the loader."""

    UINT8 = "uint8"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class VisionSpec(SpecModel):
    """Images and video frames."""

    layout: VisionLayout = VisionLayout.PATCHES
    """Form of pixel_values: `patches` of images of any size, or `frames` of one fixed `size`."""
    patch: Annotated[int, Field(ge=1)] = 14
    """Pixels of a patch's side."""
    merge: Annotated[int, Field(ge=1)] = 2
    """Patches of each direction that the encoder merges into one token."""
    temporal: Annotated[int, Field(ge=1)] = 2
    """Frames of one patch; an image is repeated as often."""
    min_pixels: Annotated[int, Field(ge=1)] = 56 * 56
    """Smaller images are enlarged to about this."""
    max_pixels: Annotated[int, Field(ge=1)] = 28 * 28 * 1280
    """Larger images and frames are made smaller than this."""
    max_patches: Annotated[int, Field(ge=1)] = 16_384
    """Most patches that one encoder takes at once: of an image, or of one temporal group of a video."""
    over_max: OverMax = OverMax.RESIZE
    """An image of more than max_patches: made smaller, left out and counted (`skip`), or cut into bands (`shard`)."""
    size: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (224, 224)
    """Height and width with layout frames."""
    tokens_per_frame: Annotated[int, Field(ge=0)] = 1
    """Placeholder tokens of each frame with layout frames."""
    dtype: PixelType = PixelType.UINT8
    """Type of pixel_values: as decoded (uint8), or normalised by the loader."""
    mean: Triple = (0.48145466, 0.4578275, 0.40821073)
    """Mean of red, green and blue in [0, 1]; the default is that of CLIP and Qwen2-VL."""
    std: Triple = (0.26862954, 0.26130258, 0.27577711)
    """Standard deviation of red, green and blue."""
    fps: Annotated[float, Field(gt=0)] = 2.0
    """Frames taken of each second of a video."""
    min_frames: Annotated[int, Field(ge=1)] = 2
    """Frames taken of a video at least."""
    max_frames: Annotated[int, Field(ge=1)] = 64
    """Frames taken of a video at most; more are thinned out evenly."""
    image_token: TokenName = "<|image_pad|>"
    """Placeholder of an image: as many as the encoder yields embeddings."""
    video_token: TokenName = "<|video_pad|>"
    """Placeholder of a video, as `image_token`."""
    start_token: TokenName | None = None
    """Put before each image and video, for example `<|vision_start|>`."""
    end_token: TokenName | None = None
    """Put after each image and video."""

    @model_validator(mode="after")
    def _fits(self) -> VisionSpec:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        if self.min_pixels > self.max_pixels:
            yield f"min_pixels must be at most max_pixels {self.max_pixels}, got {self.min_pixels}"
        if self.max_pixels < self.factor**2:
            yield f"max_pixels must hold a merged patch of {self.factor} x {self.factor} pixels, got {self.max_pixels}"
        if self.max_patches < self.merge**2:
            yield f"max_patches must be at least merge*merge = {self.merge**2}, got {self.max_patches}"
        if self.min_frames > self.max_frames:
            yield f"min_frames must be at most max_frames {self.max_frames}, got {self.min_frames}"
        if min(self.std) <= 0:
            yield f"std must be positive, got {list(self.std)}"
        if self.layout is VisionLayout.FRAMES and self.over_max is OverMax.SHARD:
            yield "over_max must be resize or skip with layout frames, got shard: a frame is one patch"

    @property
    def factor(self) -> int:
        """Pixels of a merged patch's side: images are resized to multiples of it."""
        return self.patch * self.merge

    @property
    def is_patches(self) -> bool:
        return self.layout is VisionLayout.PATCHES

    @property
    def patch_dim(self) -> int:
        """Numbers of one row of pixel_values."""
        return 3 * self.temporal * self.patch**2 if self.is_patches else 3 * math.prod(self.size)

    @property
    def grid_merge(self) -> int:
        """`merge` of grids: with layout frames a frame is one patch, and nothing merges."""
        return self.merge if self.is_patches else 1

    @property
    def unit_cap(self) -> int | None:
        """Patches over which an image is cut into bands; None: never."""
        return self.max_patches if self.over_max is OverMax.SHARD else None

    @property
    def item_bytes(self) -> int:
        """Bytes of one number of pixel_values."""
        return 1 if self.dtype is PixelType.UINT8 else 2

    def num_tokens(self, grid: tuple[int, int, int]) -> int:
        """Placeholder tokens of an image or video of a grid (t, h, w): t*h*w / merge^2, or t * tokens_per_frame."""
        patches = math.prod(grid)
        return patches // self.merge**2 if self.is_patches else patches * self.tokens_per_frame


class AudioSpec(SpecModel):
    """Audio, mixed to one channel."""

    rate: Annotated[int, Field(ge=1000)] = 16_000
    """Samples per second."""
    hop: Annotated[int, Field(ge=1)] = 320
    """Samples of one frame; the last frame is filled with silence."""
    merge: Annotated[int, Field(ge=1)] = 1
    """Frames that the encoder merges into one token."""
    max_s: Annotated[float, Field(gt=0)] = 30.0
    """Longer audio is cut to this."""
    audio_token: TokenName = "<|audio_pad|>"
    """Placeholder of audio: one a frame, or a group of `merge`."""
    start_token: TokenName | None = None
    """Put before each recording."""
    end_token: TokenName | None = None
    """Put after each recording."""

    def num_frames(self, duration_s: float) -> int:
        """Frames of audio of a duration, cut to `max_s`."""
        return -(-round(min(duration_s, self.max_s) * self.rate) // self.hop)

    def num_tokens(self, num_frames: int) -> int:
        """Placeholder tokens."""
        return -(-num_frames // self.merge)


class MediaSpec(SpecModel):
    """What a run makes of images, video and audio. Without it a run is text alone."""

    vision: VisionSpec | None = None
    """Images and video; null: the run has none."""
    audio: AudioSpec | None = None
    """Audio; null: the run has none."""
    max_bytes: Annotated[int, Field(ge=1)] = 64 << 20
    """A larger file is bad; checked before it is decoded."""
    max_decode_pixels: Annotated[int, Field(ge=1)] = 100_000_000
    """A picture or frame of more pixels is bad; checked in its header, before it is decoded."""
