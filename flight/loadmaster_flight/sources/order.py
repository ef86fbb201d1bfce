"""The order of a source as pure functions of its manifest, the seed and the epoch: nothing else enters it.

# L = lanes, N = rows of a block, U = units
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..spec.manifest import SourceManifest, UnitKind
from ..spec.source import SourceFormat
from .hashing import fold_array, name_key

Int64Array = npt.NDArray[np.int64]
WHOLE_SHARD = -1


class Unit(NamedTuple):
    """What is dealt to lanes: a shard (block is WHOLE_SHARD) or one block of it."""

    shard: int
    block: int


def _all_units(manifest: SourceManifest) -> tuple[list[Unit], list[int]]:
    """Units in file order with their bytes; a unit's number in H is its place here."""
    if manifest.unit_kind is UnitKind.SHARD:
        shards = manifest.shards
        return [Unit(i, WHOLE_SHARD) for i in range(len(shards))], [shard.size_bytes for shard in shards]
    units: list[Unit] = []
    sizes: list[int] = []
    for index, shard in enumerate(manifest.shards):
        blocks = shard.block_sizes or ()
        units.extend(Unit(index, block) for block in range(len(blocks)))
        sizes.extend(blocks)
    return units, sizes


def lane_units(manifest: SourceManifest, seed: int, epoch: int) -> list[list[Unit]]:
    """Deal the units of an epoch to lanes.

    Units sorted by H(seed, source, epoch, unit number) go one by one to the lane with the fewest bytes so far; ties go
    to the lower lane. A lane may get nothing where units are fewer than lanes or empty.

    Returns:
        One list of units per lane, in the order in which the lane reads them.
    """
    units, sizes = _all_units(manifest)
    hash_U = fold_array(seed, name_key(manifest.name), epoch, last_N=np.arange(len(units)))
    lanes: list[list[Unit]] = [[] for _ in range(manifest.lanes)]
    fewest = [(0, lane) for lane in range(manifest.lanes)]
    for index in np.argsort(hash_U, kind="stable").tolist():
        size_bytes, lane = fewest[0]
        heapq.heapreplace(fewest, (size_bytes + sizes[index], lane))
        lanes[lane].append(units[index])
    return lanes


def block_sequence(manifest: SourceManifest, seed: int, epoch: int, unit: Unit, num_blocks: int) -> list[int]:
    """Blocks of a unit in the order in which they are read.

    A seekable shard's blocks are sorted by H(seed, source, epoch, shard, block); others are read in file order.
    """
    if unit.block != WHOLE_SHARD:
        return [unit.block]
    if not manifest.shards[unit.shard].is_seekable:
        return list(range(num_blocks))
    hash_N = fold_array(seed, name_key(manifest.name), epoch, unit.shard, last_N=np.arange(num_blocks))
    return [int(block) for block in np.argsort(hash_N, kind="stable")]


def row_order(
    manifest: SourceManifest, seed: int, epoch: int, shard: int, block: int, num_rows: int
) -> npt.NDArray[np.int64]:
    """The row that each position of a block takes: pos -> row.

    Rows are sorted by H(seed, source, epoch, shard, block, row); rows of compressed JSONL keep file order.

    Returns:
        Shape (num_rows,), int64, a permutation.
    """
    if manifest.format is SourceFormat.JSONL and not manifest.shards[shard].is_seekable:
        return np.arange(num_rows, dtype=np.int64)
    hash_N = fold_array(seed, name_key(manifest.name), epoch, shard, block, last_N=np.arange(num_rows))
    return np.argsort(hash_N, kind="stable").astype(np.int64)
