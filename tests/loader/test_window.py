"""The window: what is kept, what goes first, and that it can be made again."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.loader.chunk import Chunk, Place, SpanTable
from loadmaster_flight.loader.entry import Holds
from loadmaster_flight.loader.window import CHUNK_ROWS, Window

PLACE = Place(0, 0, 3, 1)
WHOLE = -1


def fill(window: Window, make_chunk: Any, start: int, stop: int, *, length: int = 10, is_ahead: bool = True) -> int:
    """Claim rows and make what is missing; how many chunks had to be made."""
    with window.holding() as holds:
        return fill_held(window, holds, make_chunk, start, stop, length=length, is_ahead=is_ahead)


def fill_held(
    window: Window, holds: Holds, make_chunk: Any, start: int, stop: int, *, length: int = 10, is_ahead: bool = True
) -> int:
    _, todo = window.claim(holds, PLACE, 0, np.arange(start, stop), is_ahead=is_ahead)
    for entry in todo:
        window.fill(entry, make_chunk(entry.start, [length] * (entry.stop - entry.start)))
    return len(todo)


def deliver(window: Window, start: int, stop: int) -> None:
    window.deliver(PLACE, np.arange(start, stop), np.full(stop - start, WHOLE))


def resident(window: Window, start: int, stop: int) -> bool:
    """Whether nothing would have to be made."""
    with window.holding() as holds:
        _, todo = window.claim(holds, PLACE, 0, np.arange(start, stop), is_ahead=True)
        for entry in todo:
            window.fail(entry, ValueError("only looking"))
    return not todo


def test_claim_when_rows_are_new_covers_them_in_chunks_and_keeps_them(make_chunk: Any) -> None:
    window = Window(1 << 20)
    with window.holding() as holds:
        held, todo = window.claim(holds, PLACE, 0, np.arange(5, 5 + 2 * CHUNK_ROWS + 3), is_ahead=True)
        spans = [(hold.entry.start, hold.entry.stop) for hold in held]
        for entry in todo:
            window.fill(entry, make_chunk(entry.start, [1] * (entry.stop - entry.start)))
        assert [hold.future.result().pos for hold in held] == [start for start, _ in spans]
    middle = 5 + CHUNK_ROWS
    assert spans == [(5, middle), (middle, middle + CHUNK_ROWS), (middle + CHUNK_ROWS, 5 + 2 * CHUNK_ROWS + 3)]
    assert resident(window, 5, 5 + 2 * CHUNK_ROWS + 3)


def test_claim_when_rows_overlap_what_is_there_makes_only_the_gaps(make_chunk: Any) -> None:
    window = Window(1 << 20)
    fill(window, make_chunk, 10, 20)
    with window.holding() as holds:
        held, todo = window.claim(holds, PLACE, 0, np.arange(8, 24), is_ahead=True)
        assert [(h.entry.start, h.entry.stop) for h in held] == [(8, 10), (10, 20), (20, 24)]
        assert [(e.start, e.stop) for e in todo] == [(8, 10), (20, 24)]
        for entry in todo:
            window.fill(entry, make_chunk(entry.start, [1] * (entry.stop - entry.start)))


def test_claim_when_positions_are_scattered_bridges_small_gaps_alone() -> None:
    window = Window(1 << 20)
    with window.holding() as holds:
        _, todo = window.claim(holds, PLACE, 0, np.array([1, 4, 40, 41]), is_ahead=False)
        assert [(e.start, e.stop) for e in todo] == [(1, 5), (40, 42)]
        window.abort(ValueError("over"))


def test_claim_when_another_is_making_it_waits_for_the_same_chunk(make_chunk: Any) -> None:
    window = Window(1 << 20)
    with window.holding() as first, window.holding() as second:
        _, todo = window.claim(first, PLACE, 0, np.arange(4), is_ahead=True)
        held, none = window.claim(second, PLACE, 0, np.arange(4), is_ahead=True)
        assert not none
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(held[0].future.result)
            chunk = make_chunk(0, [2] * 4)
            window.fill(todo[0], chunk)
            assert waiting.result(20) is chunk


def test_fail_when_making_failed_tells_every_holder_and_lets_the_next_try(make_chunk: Any) -> None:
    window = Window(1 << 20)
    with window.holding() as first, window.holding() as second:
        _, todo = window.claim(first, PLACE, 0, np.arange(4), is_ahead=True)
        held, _ = window.claim(second, PLACE, 0, np.arange(4), is_ahead=True)
        window.fail(todo[0], OSError("gone"))
        with pytest.raises(OSError, match="gone"):
            held[0].future.result(20)
    assert fill(window, make_chunk, 0, 4) == 1


def test_fill_when_over_budget_evicts_the_newest_first(make_chunk: Any) -> None:
    window = Window(20_000)  # a chunk of 10 rows of 100 tokens takes about 5 kB
    for start in range(0, 80, 10):
        fill(window, make_chunk, start, start + 10, length=100)
    assert window.size_bytes <= 20_000
    assert window.num_evictions > 0
    assert resident(window, 0, 20)
    assert not resident(window, 60, 70)


def test_fill_when_needed_at_once_outlives_what_was_read_ahead(make_chunk: Any) -> None:
    window = Window(20_000)
    fill(window, make_chunk, 100, 130, length=100, is_ahead=True)
    fill(window, make_chunk, 0, 20, length=100, is_ahead=False)
    assert resident(window, 0, 20)
    assert not resident(window, 100, 130)


def test_fill_when_held_keeps_a_working_set_beyond_the_budget(make_chunk: Any) -> None:
    window = Window(1)
    with window.holding() as holds:
        fill_held(window, holds, make_chunk, 0, 4 * CHUNK_ROWS, length=50)
        assert resident(window, 0, 4 * CHUNK_ROWS)
        assert window.size_bytes > 1
        assert not window.has_room(0)
    assert window.size_bytes == 0


def test_claim_when_evicted_makes_the_same_chunk_and_remembers_its_lengths(make_chunk: Any) -> None:
    window = Window(1)
    fill(window, make_chunk, 0, 10, length=5)
    with window.holding() as holds:
        held, todo = window.claim(holds, PLACE, 0, np.array([4]), is_ahead=False)
        assert [(e.start, e.stop) for e in todo] == [(0, 10)]
        window.fill(todo[0], make_chunk(0, [9] * 10))
        assert held[0].lengths_N().tolist() == [5] * 10


def test_deliver_when_all_rows_are_delivered_drops_the_chunk(make_chunk: Any) -> None:
    window = Window(1 << 20)
    fill(window, make_chunk, 0, 10)
    deliver(window, 0, 6)
    assert window.size_bytes > 0
    deliver(window, 6, 10)
    assert window.size_bytes == 0
    assert not resident(window, 0, 10)


def test_deliver_when_rows_are_bad_waits_for_the_good_ones_alone(make_chunk: Any) -> None:
    window = Window(1 << 20)
    with window.holding() as holds:
        _, todo = window.claim(holds, PLACE, 0, np.arange(3), is_ahead=True)
        window.fill(todo[0], make_chunk(0, [4, 4, 4], bad=(1,)))
    window.deliver(PLACE, np.array([0, 2]), np.array([WHOLE, WHOLE]))
    assert window.size_bytes == 0


def test_deliver_when_sample_is_cut_waits_for_its_last_piece(make_chunk: Any) -> None:
    window = Window(1 << 20)
    fill(window, make_chunk, 0, 1, length=10)
    window.deliver(PLACE, np.array([0]), np.array([8]))
    assert window.size_bytes > 0
    window.deliver(PLACE, np.array([0]), np.array([10]))
    assert window.size_bytes == 0


def test_deliver_when_still_held_drops_the_chunk_only_afterwards(make_chunk: Any) -> None:
    window = Window(1 << 20)
    with window.holding() as holds:
        fill_held(window, holds, make_chunk, 0, 4)
        deliver(window, 0, 4)
        assert window.size_bytes > 0
    assert window.size_bytes == 0


def test_fill_when_over_budget_evicts_leftovers_before_the_newest(make_chunk: Any) -> None:
    window = Window(20_000)
    fill(window, make_chunk, 0, 10, length=100)  # no plan ever takes some of these rows
    fill(window, make_chunk, 10, 20, length=100)
    fill(window, make_chunk, 20, 40, length=100)
    deliver(window, 0, 9)
    deliver(window, 10, 20)  # the lane has moved past them
    fill(window, make_chunk, 40, 50, length=100)
    fill(window, make_chunk, 50, 60, length=100)
    assert not resident(window, 0, 10)
    assert resident(window, 20, 40)


def test_window_when_used_by_many_threads_never_loses_or_mixes_rows(make_chunk: Any) -> None:
    window, start_line = Window(6_000), threading.Barrier(4)

    def take(seed: int) -> int:
        rng, checked = np.random.default_rng(seed), 0
        start_line.wait(20)
        for _ in range(100):
            start = int(rng.integers(0, 100))
            positions = np.arange(start, start + int(rng.integers(1, 30)))
            with window.holding() as holds:
                held, todo = window.claim(holds, PLACE, 0, positions, is_ahead=bool(rng.integers(2)))
                for entry in todo:
                    window.fill(entry, make_chunk(entry.start, [3] * (entry.stop - entry.start)))
                chunks = [hold.future.result(20) for hold in held]
                covered = np.concatenate([chunk.pos + np.arange(chunk.num_rows) for chunk in chunks])
                assert np.isin(positions, covered).all()
                assert len(np.unique(covered)) == len(covered)
                checked += 1
            if rng.integers(3) == 0:
                deliver(window, start, start + 10)
        return checked

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(take, range(4))) == 400
    assert window.size_bytes <= 6_000


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90)), min_size=1, max_size=8))
def test_claim_when_ranges_come_in_any_order_covers_each_row_once(ranges: list[tuple[int, int]]) -> None:
    window = Window(1 << 20)
    for start, num in ranges:
        with window.holding() as holds:
            held, todo = window.claim(holds, PLACE, 0, np.arange(start, start + num), is_ahead=True)
            for entry in todo:
                window.fill(entry, empty_chunk(entry.start, entry.stop))
            bounds = [(h.entry.start, h.entry.stop) for h in held]
        assert bounds[0][0] <= start
        assert bounds[-1][1] >= start + num
        assert all(stop == begin for (_, stop), (begin, _) in itertools.pairwise(bounds))


def empty_chunk(start: int, stop: int) -> Chunk:
    num = stop - start
    return Chunk(
        pos=start,
        rows_N=np.arange(start, stop),
        verdict_N=np.zeros(num, np.uint8),
        reasons=None,
        tokens_T=np.zeros(0, np.int32),
        offsets=np.zeros(num + 1, np.int64),
        spans=SpanTable.from_lists(None, num),
        row_bytes_N=np.zeros(num, np.int64),
    )
