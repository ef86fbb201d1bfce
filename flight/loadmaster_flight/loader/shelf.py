"""Blocks in memory: read once for all the chunks that are made from them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from ..sources.blocks import Block
from .chunk import Int64Array

ORDER_BYTES = 8
"""Memory of one row's place in a block's order."""
MAX_SIZES = 1 << 16
"""Blocks whose size is remembered after they have left; beyond it the oldest are forgotten."""


class ShelfKey(NamedTuple):
    source: int
    shard: int
    block: int


class BlockSize(NamedTuple):
    """What stays known of a block that is not here any more."""

    num_rows: int
    size_bytes: int


class ShelvedBlock:
    """A block and the order in which its rows are taken in the epoch used last.

    Args:
        is_passed: Its lane has left it behind: it is here for rows that are made once more.
    """

    def __init__(self, data: Block, *, is_passed: bool = False) -> None:
        self.data = data
        self._order: tuple[int, Int64Array] | None = None
        self._first, self._num_taken = 0, data.num_rows if is_passed else 0

    @property
    def size_bytes(self) -> int:
        return self.data.size_bytes + ORDER_BYTES * self.data.num_rows

    @property
    def is_open(self) -> bool:
        """Rows are left that nobody has taken: the lane that reads it will come back for them."""
        return self._first + self._num_taken < self.data.num_rows

    def take(self, start: int, stop: int) -> None:
        """Note that positions were taken; a lane may begin in the middle, and goes on to the end from there."""
        self._first = min(self._first, start) if self._num_taken else start
        self._num_taken += stop - start

    def order(self, epoch: int, make: Callable[[], Int64Array]) -> Int64Array:
        """pos -> row in an epoch, made by `make` where it is not the epoch used last."""
        known = self._order
        if known is not None and known[0] == epoch:
            return known[1]
        if known is not None:
            self._first = self._num_taken = 0
        order_N = make()
        self._order = (epoch, order_N)
        return order_N


class BlockShelf:
    """Blocks within `budget_bytes`, for any number of threads. Two that ask for the same block read it once.

    Over budget it drops blocks of which every row was taken, then those used longest ago. What lanes stand in is kept
    whatever the budget, or every request would read it again: of each source as many open blocks as it may have.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._reading: dict[ShelfKey, Future[ShelvedBlock]] = {}
        self._blocks: OrderedDict[ShelfKey, ShelvedBlock] = OrderedDict()
        self._sizes: OrderedDict[ShelfKey, BlockSize] = OrderedDict()
        self._may_open: dict[int, int] = {}
        self._size_bytes = 0
        self.num_reads = 0

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def reserve(self, source: int, num_lanes: int) -> None:
        """Say how many lanes read a source at once; each may stand in one block and have begun the next."""
        with self._lock:
            self._may_open[source] = 2 * num_lanes

    def size_of(self, key: ShelfKey) -> BlockSize | None:
        """What is known of a block that was read before."""
        with self._lock:
            return self._sizes.get(key)

    def peek(self, key: ShelfKey) -> ShelvedBlock | None:
        """The block, where it is here."""
        with self._lock:
            return self._blocks.get(key)

    def get(self, key: ShelfKey, read: Callable[[], Block], *, is_passed: bool = False) -> ShelvedBlock:
        """The block, read by `read` where it is not here; what `read` raises goes to everybody who waits for it.

        Args:
            is_passed: It is not wanted where its lane stands, but for rows that are made once more.
        """
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
            waiting = self._reading.get(key)
            if waiting is None:
                mine = self._reading[key] = Future()
        return waiting.result() if waiting is not None else self._read(key, read, is_passed, mine)

    def take(self, key: ShelfKey, start: int, stop: int) -> None:
        """Note that a chunk was made of these positions of a block; a block is passed when all of them were."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                block.take(start, stop)
                if not block.is_open:
                    self._shrink()

    def _read(
        self, key: ShelfKey, read: Callable[[], Block], is_passed: bool, mine: Future[ShelvedBlock]
    ) -> ShelvedBlock:
        try:
            block = ShelvedBlock(read(), is_passed=is_passed)
        except BaseException as error:
            with self._lock:
                del self._reading[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._reading[key]
            self._put(key, block)
        mine.set_result(block)
        return block

    def _put(self, key: ShelfKey, block: ShelvedBlock) -> None:
        self.num_reads += 1
        self._sizes.pop(key, None)
        self._sizes[key] = BlockSize(block.data.num_rows, block.data.size_bytes)
        while len(self._sizes) > MAX_SIZES:
            self._sizes.popitem(last=False)
        self._blocks[key] = block
        self._size_bytes += block.size_bytes
        self._shrink()

    def _shrink(self) -> None:
        """Drop blocks until the budget holds, but never the last one."""
        if self._size_bytes <= self._budget_bytes:
            return
        for key in [*self._passed(), *self._spare()]:
            if self._size_bytes <= self._budget_bytes or len(self._blocks) == 1:
                return
            self._size_bytes -= self._blocks.pop(key).size_bytes

    def _passed(self) -> list[ShelfKey]:
        return [key for key, block in self._blocks.items() if not block.is_open]

    def _spare(self) -> list[ShelfKey]:
        """Open blocks beyond those that a source may have, the one used longest ago first."""
        num_open: dict[int, int] = {}
        spare: list[ShelfKey] = []
        for key, block in reversed(self._blocks.items()):
            if block.is_open:
                num_open[key.source] = num_open.get(key.source, 0) + 1
                if num_open[key.source] > self._may_open.get(key.source, 1):
                    spare.append(key)
        return spare[::-1]
