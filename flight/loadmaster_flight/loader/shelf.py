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


class ShelfKey(NamedTuple):
    source: int
    shard: int
    block: int


class ShelvedBlock:
    """A block and, by epoch, the order in which its rows are taken."""

    def __init__(self, data: Block) -> None:
        self.data = data
        self.orders: dict[int, Int64Array] = {}

    @property
    def size_bytes(self) -> int:
        return self.data.size_bytes + ORDER_BYTES * self.data.num_rows


class BlockShelf:
    """The blocks used last, within `budget_bytes` but never fewer than one, for any number of threads.

    Two threads that ask for the same block read it once.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._reading: dict[ShelfKey, Future[ShelvedBlock]] = {}
        self._blocks: OrderedDict[ShelfKey, ShelvedBlock] = OrderedDict()
        self._size_bytes = 0
        self.num_reads = 0

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def get(self, key: ShelfKey, read: Callable[[], Block]) -> ShelvedBlock:
        """The block, read by `read` where it is not here; what `read` raises goes to everybody who waits for it."""
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
            waiting = self._reading.get(key)
            if waiting is None:
                mine = self._reading[key] = Future()
        return waiting.result() if waiting is not None else self._read(key, read, mine)

    def _read(self, key: ShelfKey, read: Callable[[], Block], mine: Future[ShelvedBlock]) -> ShelvedBlock:
        try:
            block = ShelvedBlock(read())
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
        self._blocks[key] = block
        self._size_bytes += block.size_bytes
        while self._size_bytes > self._budget_bytes and len(self._blocks) > 1:
            _, old = self._blocks.popitem(last=False)
            self._size_bytes -= old.size_bytes
