"""What one media item may cost, checked before its bytes are given to a decoder."""

from __future__ import annotations

from dataclasses import dataclass

from ..sources.blocks import ContentError


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """Limits of one image, video or audio clip.

    Attributes:
        max_bytes: Of the encoded item.
        max_pixels: Of one decoded image or frame before it is resized; also of the samples per channel of a clip.
    """

    max_bytes: int
    max_pixels: int

    def check_bytes(self, data: bytes) -> None:
        """Refuse an item without bytes, or with more than the limit.

        Raises:
            ContentError: With the number of bytes.
        """
        if not data:
            raise ContentError("empty file")
        if len(data) > self.max_bytes:
            raise ContentError(f"{len(data)} bytes, over the limit of {self.max_bytes}")

    def check_pixels(self, height: int, width: int) -> None:
        """Refuse a picture without pixels, or with more than the limit.

        Raises:
            ContentError: With height and width.
        """
        if height < 1 or width < 1:
            raise ContentError(f"{height}x{width} pixels: nothing to see")
        if height * width > self.max_pixels:
            raise ContentError(f"{height}x{width} pixels, over the limit of {self.max_pixels}")

    def check_samples(self, num_samples: int) -> None:
        """Refuse a clip of more samples per channel than the limit: silence compresses to nothing.

        Raises:
            ContentError: With the number of samples.
        """
        if num_samples > self.max_pixels:
            raise ContentError(f"{num_samples} audio samples, over the limit of {self.max_pixels}")
