"""Walking along one lane: units, their blocks, and the rows of those in the run's order.

# N = rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from ..spec.manifest import SourceManifest
from .blocks import Block, EndOfShardError
from .order import WHOLE_SHARD, Unit, block_sequence, row_order
from .reader import SourceReader

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """Consecutive rows of a lane, all of one block.

    Attributes:
        unit_index: Place in the lane's list of units.
        block_index: Place in the unit's sequence of blocks.
        pos_start: Position of the first row in the block's order; the others follow it.
        rows: Shape (N,), int64, row numbers in the block, in the lane's order. N >= 1.
    """

    unit_index: int
    block_index: int
    shard: int
    block: int
    pos_start: int
    rows: Int64Array
    block_data: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """The block at a place of the lane, with its order."""

    place: tuple[int, int]
    shard: int
    block: int
    order_N: Int64Array
    data: Block


class LaneReader:
    """Rows of one lane of an epoch from a cursor on. Reads nothing before it is asked. Not thread-safe.

    Args:
        reader: Where blocks come from.
        cursor: [lane, unit_index, block_index, next_pos]; next_pos equal to the rows of the block means the next one.
        read_block: Replaces `reader.read_block`, for callers that keep blocks themselves.
        order_of: (shard, block, num_rows) -> `order.row_order`, for callers that keep that too.
    """

    def __init__(
        self,
        reader: SourceReader,
        manifest: SourceManifest,
        seed: int,
        epoch: int,
        cursor: Sequence[int],
        *,
        read_block: Callable[[int, int], Block] | None = None,
        order_of: Callable[[int, int, int], Int64Array] | None = None,
    ) -> None:
        self._reader = reader
        self._manifest = manifest
        self._seed, self._epoch = seed, epoch
        self._lane, self._unit_index, self._block_index, self._next_pos = cursor
        self._read_block = read_block or reader.read_block
        self._order_of = order_of or partial(row_order, manifest, seed, epoch)
        self._loaded: _Loaded | None = None

    @property
    def cursor(self) -> list[int]:
        """Where the next row is: a new reader with this cursor goes on exactly here."""
        return [self._lane, self._unit_index, self._block_index, self._next_pos]

    def next_rows(self, limit: int) -> LaneRows | None:
        """The next rows, at most `limit` and all of one block; None when the lane is over for this epoch."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        units = self._reader.lane_units(self._seed, self._epoch)[self._lane]
        while self._unit_index < len(units):
            loaded = self._load(units[self._unit_index])
            if loaded is None:
                self._unit_index, self._block_index, self._next_pos = self._unit_index + 1, 0, 0
            elif self._next_pos >= len(loaded.order_N):
                self._block_index, self._next_pos = self._block_index + 1, 0
            else:
                return self._take(loaded, limit)
        self._loaded = None
        return None

    def _take(self, loaded: _Loaded, limit: int) -> LaneRows:
        start = self._next_pos
        rows_N = loaded.order_N[start : start + limit]
        self._next_pos += len(rows_N)
        return LaneRows(
            unit_index=self._unit_index,
            block_index=self._block_index,
            shard=loaded.shard,
            block=loaded.block,
            pos_start=start,
            rows=rows_N,
            block_data=loaded.data,
        )

    def _load(self, unit: Unit) -> _Loaded | None:
        """The block at the cursor; None behind the unit's last one."""
        place = (self._unit_index, self._block_index)
        if self._loaded is not None and self._loaded.place == place:
            return self._loaded
        self._loaded = None  # let go of the block before the next one is read
        block = self._block_at(unit)
        if block is None:
            return None
        try:
            data = self._read_block(unit.shard, block)
        except EndOfShardError:
            return None
        order_N = self._order_of(unit.shard, block, data.num_rows)
        self._loaded = _Loaded(place=place, shard=unit.shard, block=block, order_N=order_N, data=data)
        return self._loaded

    def _block_at(self, unit: Unit) -> int | None:
        """The block to read next; for shards whose number of blocks is unknown, the next one in file order."""
        num_blocks = 1 if unit.block != WHOLE_SHARD else self._reader.num_blocks(unit.shard)
        if num_blocks is None:
            return self._block_index
        if self._block_index >= num_blocks:
            return None
        return block_sequence(self._manifest, self._seed, self._epoch, unit, num_blocks)[self._block_index]
