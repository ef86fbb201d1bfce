"""The shelf of blocks: read once, bounded in bytes, honest about failures."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from loadmaster_flight.loader.shelf import BlockShelf, ShelfKey
from loadmaster_flight.sources.blocks import FaultBlock


def block(size_bytes: int) -> FaultBlock:
    return FaultBlock(num_rows=0, reason="nothing", size_bytes=size_bytes)


def key(number: int) -> ShelfKey:
    return ShelfKey(0, 0, number)


@dataclass
class Counting:
    """A read that counts how often it runs."""

    size_bytes: int = 10
    num_reads: int = 0

    def __call__(self) -> FaultBlock:
        self.num_reads += 1
        return block(self.size_bytes)


def test_get_when_block_is_there_reads_it_once() -> None:
    shelf, read = BlockShelf(100), Counting()
    assert shelf.get(key(1), read) is shelf.get(key(1), read)
    assert read.num_reads == 1


def test_get_when_two_threads_ask_reads_it_once() -> None:
    shelf, reading, go_on = BlockShelf(100), threading.Event(), threading.Event()

    def slow() -> FaultBlock:
        reading.set()
        assert go_on.wait(20)
        return block(1)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shelf.get, key(1), slow)
        assert reading.wait(20)
        second = pool.submit(shelf.get, key(1), never_read)
        go_on.set()
        assert first.result(20) is second.result(20)


def never_read() -> FaultBlock:
    raise AssertionError("somebody else reads this block")


def test_get_when_over_budget_drops_the_one_used_longest_ago() -> None:
    shelf, reads = BlockShelf(25), [Counting() for _ in range(3)]
    for number in (0, 1, 0, 2):
        shelf.get(key(number), reads[number])
    assert shelf.size_bytes == 20
    shelf.get(key(0), reads[0])
    shelf.get(key(1), reads[1])
    assert [read.num_reads for read in reads] == [1, 2, 1]


def test_get_when_one_block_exceeds_the_budget_keeps_it_alone() -> None:
    shelf = BlockShelf(25)
    shelf.get(key(0), Counting())
    read = Counting(size_bytes=1000)
    shelf.get(key(1), read)
    shelf.get(key(1), read)
    assert read.num_reads == 1
    assert shelf.size_bytes == 1000


def test_get_when_reading_fails_passes_it_on_and_tries_again_next_time() -> None:
    shelf = BlockShelf(100)

    def fail() -> FaultBlock:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        shelf.get(key(1), fail)
    assert shelf.get(key(1), Counting()).data.size_bytes == 10


def test_size_when_block_has_rows_counts_their_order() -> None:
    shelf = BlockShelf(1 << 20)
    shelf.get(key(1), lambda: FaultBlock(num_rows=100, reason="nothing", size_bytes=5))
    assert shelf.size_bytes == 5 + 100 * np.dtype(np.int64).itemsize
