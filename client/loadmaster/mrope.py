"""Positions in time, height and width for models with multimodal rotary embeddings.

# C = tokens of the microbatch, T = tokens of this rank's slice
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.slicing import zigzag_index

from .images import Images

Int64Array = npt.NDArray[np.int64]


def mrope_positions(images: Images, cu_seqlens: npt.ArrayLike, *, cp: int = 1, cp_rank: int = 0) -> Int64Array:
    """Time, height and width of each token, as Qwen2-VL counts them in transformers 5: restarting in each document.

    Text advances all three by one a token. The tokens of an image or video have their place in its grid of merged
    patches, counted from where the text before it ended; text goes on behind the larger of its height and width.

    Args:
        images: Of the microbatch; grid_thw and token_start must be there.
        cu_seqlens: Boundaries of the whole microbatch.
        cp: Number of slices.
        cp_rank: Which slice.

    Returns:
        Shape (3, T), int64.
    """
    bounds: Int64Array = np.asarray(cu_seqlens, np.int64)
    steps_C = np.ones(int(bounds[-1]), np.int64)
    offset_3C = np.zeros((3, len(steps_C)), np.int64)
    for place, place_3n, extent in _items(images):
        num = place_3n.shape[1]
        steps_C[place : place + num] = 0
        steps_C[place + num - 1] = extent
        offset_3C[:, place : place + num] = place_3n
    before_C = np.concatenate([[0], np.cumsum(steps_C)[:-1]])
    start_C = np.repeat(before_C[bounds[:-1]], np.diff(bounds))
    positions_3C: Int64Array = before_C - start_C + offset_3C
    if cp > 1:
        positions_3C = positions_3C[:, zigzag_index(bounds, cp, cp_rank)]
    return positions_3C


def _items(images: Images) -> list[tuple[int, Int64Array, int]]:
    """First token, place in the grid of each token (3, n), and how far text advances, of each image and video."""
    if images.grid_thw is None or images.token_start is None:
        return []
    merge = images.fields.merge
    found = []
    for start, (t, h, w) in zip(images.token_start.tolist(), images.grid_thw.tolist(), strict=True):
        if start >= 0:
            shape = (t, h // merge, w // merge)
            found.append((start, np.indices(shape).reshape(3, -1), max(shape[1:])))
    return found
