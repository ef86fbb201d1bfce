"""Units of media: what an encoder takes at once, so what encoder ranks are balanced by.

An image is one unit, a video one unit for each of its temporal groups: attention stays inside a group (the convention
of Qwen2-VL, whose encoder gets one segment a frame). A unit over a cap is cut into bands of whole merged rows.

# U = units
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .schemas import MediaKind

Int64Array = npt.NDArray[np.int64]
Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaItem:
    """One image, video or audio clip of a sample.

    Attributes:
        kind: What it is.
        grid: (t, h, w) patches before merging; a fixed-size frame is one patch, (frames, 1, 1), and so is audio.
        token_start: First placeholder, counted from the document's first token.
    """

    kind: MediaKind
    grid: Grid
    token_start: int


def unit_grids(kind: MediaKind, grid: Grid, *, merge: int = 1, max_patches: int | None = None) -> list[Grid]:
    """The units of an item, each (1, h, w), in the order of its patches; audio has none.

    Args:
        merge: Neighbouring patches in each direction that become one token: bands are whole rows of these.
        max_patches: A unit with more patches is cut into as few bands of about equal height as hold the cap (or are
            one merged row high); None: never.
    """
    if kind is MediaKind.AUDIO:
        return []
    t, h, w = grid
    rows = h // merge
    rows_of_band = rows if max_patches is None else max(1, max_patches // (w * merge))
    num_bands = -(-rows // rows_of_band)
    edges = [rows * i // num_bands * merge for i in range(num_bands)] + [h]
    return [(1, stop - start, w) for start, stop in itertools.pairwise(edges)] * t


def patches_of(grids: list[Grid]) -> Int64Array:
    """Patches of each unit, int64 (U,)."""
    return np.array([t * h * w for t, h, w in grids], np.int64)
