"""Walking along one lane: units, their blocks, and the rows of those in the run's order.

# N = rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..spec.manifest import SourceManifest
from .blocks import Block, EndOfShardError
from .order import WHOLE_SHARD, Unit, block_sequence, row_order
from .reader import SourceReader

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStretch:
    """Consecutive positions [start, stop) of a lane, all of one block.

    Attributes:
        unit_index: Place in the lane's list of units.
        block_index: Place in the unit's sequence of blocks.
    """

    unit_index: int
    block_index: int
    shard: int
    block: int
    start: int
    stop: int


class LanePath:
    """A cursor that moves along one lane for one epoch, knowing of blocks no more than how many rows they have.

    Args:
        reader: Of the source.
        manifest: Of the source.
        seed: Of the run.
        epoch: From 0.
        cursor: [lane, unit_index, block_index, next_pos]; next_pos equal to the rows of the block means the next one.
        num_rows_of: (shard, block) -> rows of a block; raises EndOfShardError behind the last one.
    """

    def __init__(
        self,
        reader: SourceReader,
        manifest: SourceManifest,
        seed: int,
        epoch: int,
        cursor: Sequence[int],
        *,
        num_rows_of: Callable[[int, int], int],
    ) -> None:
        self._reader = reader
        self._manifest = manifest
        self._seed, self._epoch = seed, epoch
        self._lane, self._unit_index, self._block_index, self._next_pos = cursor
        self._num_rows_of = num_rows_of
        self._here: tuple[tuple[int, int], int, int] | None = None  # (unit_index, block_index), block, its rows

    @property
    def cursor(self) -> list[int]:
        """Where the next row is: a new path with this cursor goes on exactly here."""
        return [self._lane, self._unit_index, self._block_index, self._next_pos]

    def next_stretch(self, limit: int) -> LaneStretch | None:
        """The next positions, at least one and at most `limit`; None when the lane is over for this epoch."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        units = self._reader.lane_units(self._seed, self._epoch)[self._lane]
        while self._unit_index < len(units):
            unit = units[self._unit_index]
            found = self._look(unit)
            if found is None:
                self._unit_index, self._block_index, self._next_pos = self._unit_index + 1, 0, 0
                continue
            block, num_rows = found
            if self._next_pos < num_rows:
                return self._take(unit.shard, block, min(num_rows, self._next_pos + limit))
            self._block_index, self._next_pos = self._block_index + 1, 0
        return None

    def _take(self, shard: int, block: int, stop: int) -> LaneStretch:
        start, self._next_pos = self._next_pos, stop
        return LaneStretch(
            unit_index=self._unit_index,
            block_index=self._block_index,
            shard=shard,
            block=block,
            start=start,
            stop=stop,
        )

    def _look(self, unit: Unit) -> tuple[int, int] | None:
        """The block at the cursor and its rows; None behind the unit's last one."""
        place = (self._unit_index, self._block_index)
        if self._here is None or self._here[0] != place:
            block = self._block_at(unit)
            if block is None:
                return None
            try:
                self._here = (place, block, self._num_rows_of(unit.shard, block))
            except EndOfShardError:
                return None
        return self._here[1:]

    def _block_at(self, unit: Unit) -> int | None:
        """The block to go to; for shards whose number of blocks is unknown, the next one in file order."""
        num_blocks = 1 if unit.block != WHOLE_SHARD else self._reader.num_blocks(unit.shard)
        if num_blocks is None:
            return self._block_index
        if self._block_index >= num_blocks:
            return None
        return block_sequence(self._manifest, self._seed, self._epoch, unit, num_blocks)[self._block_index]


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
    """A block with its order."""

    place: tuple[int, int]
    order_N: Int64Array
    data: Block


class LaneReader:
    """Reads one lane for one epoch, keeping the block it stands in. Not thread-safe; lanes are independent.

    Args:
        cursor: As for `LanePath`.
    """

    def __init__(
        self, reader: SourceReader, manifest: SourceManifest, seed: int, epoch: int, cursor: Sequence[int]
    ) -> None:
        self._reader, self._manifest = reader, manifest
        self._seed, self._epoch = seed, epoch
        self._path = LanePath(reader, manifest, seed, epoch, cursor, num_rows_of=self._num_rows_of)
        self._loaded: _Loaded | None = None

    @property
    def cursor(self) -> list[int]:
        """Where the next row is: a new reader with this cursor goes on exactly here."""
        return self._path.cursor

    def next_rows(self, limit: int) -> LaneRows | None:
        """The next rows, at most `limit` and all of one block; None when the lane is over for this epoch."""
        stretch = self._path.next_stretch(limit)
        if stretch is None:
            self._loaded = None
            return None
        loaded = self._load(stretch.shard, stretch.block)
        return LaneRows(
            unit_index=stretch.unit_index,
            block_index=stretch.block_index,
            shard=stretch.shard,
            block=stretch.block,
            pos_start=stretch.start,
            rows=loaded.order_N[stretch.start : stretch.stop],
            block_data=loaded.data,
        )

    def _num_rows_of(self, shard: int, block: int) -> int:
        return self._load(shard, block).data.num_rows

    def _load(self, shard: int, block: int) -> _Loaded:
        if self._loaded is not None and self._loaded.place == (shard, block):
            return self._loaded
        self._loaded = None  # let go of the block before the next one is read
        data = self._reader.read_block(shard, block)
        order_N = row_order(self._manifest, self._seed, self._epoch, shard, block, data.num_rows)
        self._loaded = _Loaded(place=(shard, block), order_N=order_N, data=data)
        return self._loaded
