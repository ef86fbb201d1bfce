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


def rows_of(num_rows: int) -> FaultBlock:
    return FaultBlock(num_rows=num_rows, reason="nothing", size_bytes=0)


def resident(shelf: BlockShelf, numbers: range) -> list[int]:
    """Which of these blocks would not have to be read."""

    def miss() -> FaultBlock:
        raise LookupError

    found = []
    for number in numbers:
        try:
            shelf.get(key(number), miss)
        except LookupError:
            continue
        found.append(number)
    return found


def test_shelf_when_lanes_stand_in_blocks_keeps_them_over_budget() -> None:
    shelf = BlockShelf(1)
    shelf.reserve(0, 2)
    for number in range(4):
        shelf.get(key(number), lambda: rows_of(10))
    assert resident(shelf, range(4)) == [0, 1, 2, 3]


def test_shelf_when_more_blocks_are_open_than_lanes_can_be_in_drops_the_oldest() -> None:
    shelf = BlockShelf(1)
    shelf.reserve(0, 1)
    for number in range(5):
        shelf.get(key(number), lambda: rows_of(10))
    assert resident(shelf, range(5)) == [3, 4]


@pytest.mark.parametrize("first", [0, 4])
def test_shelf_when_a_lane_has_passed_a_block_drops_it_first(first: int) -> None:
    shelf = BlockShelf(200)
    shelf.reserve(0, 4)
    for number in range(3):
        shelf.get(key(number), lambda: rows_of(10))
    shelf.take(key(1), first, 7)
    assert resident(shelf, range(3)) == [0, 1, 2]
    shelf.take(key(1), 7, 10)
    assert resident(shelf, range(3)) == [0, 2]


def test_shelf_when_a_block_is_read_once_more_for_old_rows_does_not_count_it_as_open() -> None:
    shelf = BlockShelf(200)
    shelf.reserve(0, 4)
    shelf.get(key(0), lambda: rows_of(10), is_passed=True)
    for number in (1, 2):
        shelf.get(key(number), lambda: rows_of(10))
    assert resident(shelf, range(3)) == [1, 2]


def test_shelf_when_an_epoch_begins_again_then_passed_blocks_are_open() -> None:
    shelf = BlockShelf(200)
    shelf.reserve(0, 4)
    passed = shelf.get(key(0), lambda: rows_of(10))
    for epoch in (0, 1):
        passed.order(epoch, lambda: np.arange(10))
        assert passed.is_open
        shelf.take(key(0), 0, 10)
        assert not passed.is_open


def test_size_of_when_a_block_has_left_is_still_known() -> None:
    shelf = BlockShelf(1)
    for number in range(2):
        shelf.get(key(number), lambda: FaultBlock(num_rows=0, reason="nothing", size_bytes=7))
    assert resident(shelf, range(2)) == [1]
    assert shelf.size_of(key(0)) == (0, 7)
    assert shelf.size_of(key(9)) is None
