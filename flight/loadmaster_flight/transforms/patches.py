"""Pictures as the patches of a vision transformer, in the order of Qwen2-VL.

# T = frames, H, W = pixels, C = channels, P = patches, D = values of a patch
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..sources.blocks import ContentError
from .planes import Pixels, Planes, split

MAX_ASPECT_RATIO = 200


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The size that an image of a given size is resized to: Qwen2-VL's rule.

    Args:
        height: Of the image.
        width: Of the image.
        factor: Both results are multiples of it: patch * merge.
        min_pixels: The result has at least so many.
        max_pixels: The result has at most so many, where one factor a side allows it.

    Returns:
        Height and width; their ratio is about the image's.

    Raises:
        ContentError: One side is more than 200 times the other.
    """
    if max(height, width) > MAX_ASPECT_RATIO * min(height, width):
        raise ContentError(f"{height}x{width} pixels: one side is over {MAX_ASPECT_RATIO} times the other")
    new_height, new_width = (max(0, round(side / factor) * factor) for side in (height, width))
    if new_height * new_width > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        new_height, new_width = (math.floor(side / shrink / factor) * factor for side in (height, width))
    elif new_height * new_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_height, new_width = (math.ceil(side * grow / factor) * factor for side in (height, width))
    return max(factor, new_height), max(factor, new_width)


def to_patches(frames_THWC: Pixels, *, patch: int, merge: int, temporal: int, out: Pixels | None = None) -> Pixels:
    """Cut frames into patches.

    Args:
        frames_THWC: uint8, RGB. H and W are multiples of patch * merge; the last frame stands in for frames that are
            missing to a multiple of `temporal`, so an image is one frame.
        patch: Pixels of a patch's side.
        merge: Patches that the model merges to a token, along each side; they are next to each other in the result.
        temporal: Frames of a patch.
        out: Where to write; a new array where it is not given.

    Returns:
        uint8 [P, D], P = t * h * w in the order (t, h / merge, w / merge, merge, merge), D in the order (channel,
        frame, row, column). `out` where it was given.

    Raises:
        ValueError: Sizes that do not divide, or `out` of another shape.
    """
    return planes_to_patches(split(frames_THWC), patch=patch, merge=merge, temporal=temporal, out=out)


def planes_to_patches(planes: Planes, *, patch: int, merge: int, temporal: int, out: Pixels | None = None) -> Pixels:
    """As `to_patches`, from three planes, uint8 [T, H, W] or, of one frame, [H, W].

    Every pixel is copied once, twice where pixels of a row do not lie next to each other.
    """
    planes_THW = [plane[np.newaxis] if plane.ndim == 2 else plane for plane in planes]
    num_frames, height, width = planes_THW[0].shape
    for name, side in (("height", height), ("width", width)):
        if side % (patch * merge):
            raise ValueError(f"{name} must be a multiple of patch * merge = {patch * merge}, got {side}")
    groups, rows, columns = -(-num_frames // temporal), height // patch // merge, width // patch // merge
    shape = (groups * rows * columns * merge**2, 3 * temporal * patch**2)
    out = np.empty(shape, np.uint8) if out is None else _checked(out, shape)
    # A row of a patch's pixels is one item: numpy copies 14 bytes at once as fast as one.
    row_type = np.dtype(("V", patch))
    cells = out.view(row_type).reshape(groups, rows, columns, merge, merge, 3, temporal, patch)
    for group in range(groups):
        frames = slice(group * temporal, (group + 1) * temporal)
        for channel, plane_THW in enumerate(planes_THW):
            _fill(cells[group, ..., channel, :, :], _by_row(plane_THW[frames], row_type))
    return out


def _by_row(plane_THW: Pixels, row_type: np.dtype[Any]) -> npt.NDArray[Any]:
    """Pixels as rows of patches, [T, H, columns]; a copy where pixels of a row do not lie next to each other."""
    if plane_THW.strides[-1] != 1:
        plane_THW = np.ascontiguousarray(plane_THW)
    return plane_THW.view(row_type)


def _fill(cells: npt.NDArray[Any], rows_THX: npt.NDArray[Any]) -> None:
    """Write one channel of one group of frames: cells [row, column, merge, merge, temporal, patch]."""
    rows, columns, merge, _, temporal, patch = cells.shape
    for place in range(temporal):
        if place < len(rows_THX):
            # row of cells, merged row, pixel row, column of cells, merged column
            blocks = rows_THX[place].reshape(rows, merge, patch, columns, merge)
            cells[..., place, :] = blocks.transpose(0, 3, 1, 4, 2)
        else:
            cells[..., place, :] = cells[..., place - 1, :]


def _checked(out: Pixels, shape: tuple[int, int]) -> Pixels:
    if out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
        raise ValueError(f"out must be contiguous uint8 {shape}, got {out.dtype} {out.shape}")
    return out


def normalised(
    patches_PD: Pixels, *, mean: Sequence[float], std: Sequence[float], dtype: str, out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """Normalise patches as models are trained: (value / 255 - mean) / std, for each channel.

    Args:
        patches_PD: uint8, from `to_patches`: the channel is the slowest part of D.
        mean: Three numbers, red, green and blue, between 0 and 1.
        std: Three numbers.
        dtype: "float32", "float16" or "bfloat16".
        out: Where to write; a new array where it is not given.

    Returns:
        Shape (P, D); bfloat16 as the bits of it, uint16. Computed in float32 and rounded to the nearest.
    """
    levels_C256 = _levels(mean, std, dtype)
    out = np.empty(patches_PD.shape, levels_C256.dtype) if out is None else out
    width = patches_PD.shape[1] // 3
    for channel, level in enumerate(levels_C256):
        part = slice(channel * width, (channel + 1) * width)
        out[:, part] = level[patches_PD[:, part]]
    return out


def _levels(mean: Sequence[float], std: Sequence[float], dtype: str) -> npt.NDArray[Any]:
    """What each of the 256 values of each channel becomes."""
    value_256 = np.arange(256, dtype=np.float32) / np.float32(255)
    mean_C1, std_C1 = (np.asarray(three, np.float32)[:, np.newaxis] for three in (mean, std))
    exact_C256 = (value_256 - mean_C1) / std_C1
    if dtype == "bfloat16":
        bits = exact_C256.view(np.uint32)
        return ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    if dtype not in ("float32", "float16"):
        raise ValueError(f"dtype must be float32, float16 or bfloat16, got {dtype!r}")
    return exact_C256.astype(dtype)
