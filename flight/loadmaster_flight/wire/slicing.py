"""Which part of a microbatch a rank gets: its place on the axes that cut one, and the tokens of a cp rank.

# E = segment boundaries (segments + 1), T = tokens of one rank's slice
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from .errors import MeshError

Int64Array = npt.NDArray[np.int64]
_PREFIX = "loadmaster."
_SEAT = b"loadmaster.seat"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlace:
    """A rank's place on the axes that cut a microbatch: cp cuts its tokens, pp its fields. By default all of it.

    Ranks that differ in tp alone have the same place, and the same bytes.
    """

    cp: int = 1
    cp_rank: int = 0
    pp: int = 1
    pp_rank: int = 0

    @staticmethod
    def of(mesh: Mapping[str, int], coords: Mapping[str, int]) -> SlicePlace:
        """The place of a rank by its mesh's sizes and its own coordinates; an axis that is not named has size 1."""
        return SlicePlace(
            cp=mesh.get("cp", 1), cp_rank=coords.get("cp", 0), pp=mesh.get("pp", 1), pp_rank=coords.get("pp", 0)
        )

    @staticmethod
    def from_metadata(metadata: Mapping[bytes, bytes] | None) -> SlicePlace:
        """What the schema of a batch says of its place; a schema that says nothing is of whole microbatches."""
        known = metadata or {}
        names = ("cp", "cp_rank", "pp", "pp_rank")
        return SlicePlace(**{n: int(known[key]) for n in names if (key := f"{_PREFIX}{n}".encode()) in known})

    def to_metadata(self) -> dict[bytes, bytes]:
        """What `from_metadata` reads."""
        return {f"{_PREFIX}{name}".encode(): str(value).encode() for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeat:
    """A rank and the mesh it is of, where batches are made for one rank alone.

    Attributes:
        rank: Global rank.
        mesh: Axis sizes, slowest first.
    """

    rank: int
    mesh: dict[str, int]

    @staticmethod
    def from_metadata(metadata: Mapping[bytes, bytes] | None) -> RankSeat | None:
        """What the schema of a batch says; None where ranks share their batches."""
        text = (metadata or {}).get(_SEAT)
        if text is None:
            return None
        seat = json.loads(text)
        return RankSeat(rank=seat["rank"], mesh=seat["mesh"])

    def to_metadata(self) -> dict[bytes, bytes]:
        """What `from_metadata` reads."""
        return {_SEAT: json.dumps(asdict(self)).encode()}

    def coords_of(self, rank: int) -> dict[str, int]:
        """Mesh coordinates of any rank."""
        index = np.unravel_index(rank, tuple(self.mesh.values()))
        return {axis: int(i) for axis, i in zip(self.mesh, index, strict=True)}


WHOLE = SlicePlace()
"""Microbatches that are not cut."""


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
