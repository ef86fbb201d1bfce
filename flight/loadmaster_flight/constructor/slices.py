"""Which part of a microbatch a rank gets: context-parallel token indexes, and what is refused so far.

# E = segment boundaries (segments + 1), T = tokens of one rank's slice
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.errors import MeshError

Int64Array = npt.NDArray[np.int64]


def zigzag_index(cu_seqlens_E: npt.NDArray[np.integer], cp: int, cp_rank: int) -> Int64Array:
    """The tokens of one cp rank: of every segment, cut into 2*cp equal chunks, the chunks r and 2*cp-1-r.

    All ranks together have each token exactly once, and each the same causal attention work (the rule of
    Transformer Engine's `thd_get_partitioned_indices`).

    Args:
        cu_seqlens_E: Shape (E,), ascending from 0; every segment divisible by 2*cp.
        cp: Size of the axis.
        cp_rank: In [0, cp).

    Returns:
        Shape (T,) with T = cu_seqlens_E[-1] / cp, ascending.

    Raises:
        MeshError: A segment cannot be cut evenly.
    """
    if not 0 <= cp_rank < cp:
        raise MeshError(f"cp coordinate must be in [0, {cp}), got {cp_rank}")
    bounds_E: Int64Array = np.asarray(cu_seqlens_E, np.int64)
    length: Int64Array = bounds_E[1:] - bounds_E[:-1]
    if np.any(length % (2 * cp)):
        at = int(np.flatnonzero(length % (2 * cp))[0])
        raise MeshError(f"segment lengths must be divisible by 2*cp = {2 * cp}, got {length[at]}: raise batch.align")
    chunk = length // (2 * cp)
    count = 2 * chunk
    start_T, chunk_T = np.repeat(bounds_E[:-1], count), np.repeat(chunk, count)
    offset_T = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    is_low_T = offset_T < chunk_T
    high_T = start_T + (2 * cp - 1 - cp_rank) * chunk_T + (offset_T - chunk_T)
    return np.where(is_low_T, start_T + cp_rank * chunk_T + offset_T, high_T)


def require_whole_microbatches(mesh: Mapping[str, int]) -> None:
    """Refuse what is not served yet: every rank of a dp coordinate gets whole microbatches with all fields.

    That is right for tp (all read the same) and for pp (a stage leaves alone what it does not need).

    Raises:
        MeshError: The mesh has a cp axis.
    """
    if mesh.get("cp", 1) != 1:
        raise MeshError(f"mesh.cp must be 1 in this version (microbatches are served whole), got {mesh['cp']}")
