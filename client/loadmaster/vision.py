"""Pixels as an encoder takes them, on the device where they are.

# P = patches, D = numbers of a patch: those of red first, then green, then blue
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .tensors import Array

Triple = tuple[float, float, float]


def normalise(pixels: Array, mean: Triple, std: Triple, dtype: Any = None) -> Array:
    """(pixels / 255 - mean) / std by colour, on the device where the pixels are. Move them there as uint8.

    Args:
        pixels: Shape (P, D), uint8: `images.pixel_values`. Others are normalised already, and cast only.
        mean: `images.mean`.
        std: `images.std`.
        dtype: Of the result; by default float32. It is computed in float32.

    Returns:
        Shape (P, D), the caller's own.
    """
    if isinstance(pixels, np.ndarray):
        return _with_numpy(pixels, mean, std, np.float32 if dtype is None else dtype)
    torch = importlib.import_module("torch")
    kind = torch.float32 if dtype is None else dtype
    if pixels.dtype is not torch.uint8:
        return pixels.to(kind, copy=True)
    scale, shift = _affine(mean, std)
    colours = pixels.to(torch.float32).view(pixels.shape[0], 3, -1)
    colours.mul_(colours.new_tensor(scale).view(3, 1)).sub_(colours.new_tensor(shift).view(3, 1))
    return colours.view(pixels.shape).to(kind)


def _with_numpy(pixels: np.ndarray, mean: Triple, std: Triple, dtype: Any) -> np.ndarray:
    if pixels.dtype != np.uint8:
        return pixels.astype(dtype)
    scale, shift = _affine(mean, std)
    colours = pixels.astype(np.float32).reshape(len(pixels), 3, -1)
    colours *= np.array(scale, np.float32)[:, None]
    colours -= np.array(shift, np.float32)[:, None]
    return colours.reshape(pixels.shape).astype(dtype)


def _affine(mean: Triple, std: Triple) -> tuple[list[float], list[float]]:
    """pixel * scale - shift is the pixel normalised."""
    return [1 / (255 * s) for s in std], [m / s for m, s in zip(mean, std, strict=True)]
