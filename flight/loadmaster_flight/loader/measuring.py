"""Having rows measured: chunks are made in a pool of workers, each one once, and held in the window meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..sources.lanes import LaneReader
from ..wire.errors import UnavailableError
from .chunk import Int64Array, Place
from .entry import Entry, Hold, Holds
from .metadata import LanePart, lane_end
from .opened import OpenedSource
from .window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows [start, stop) that a lane has met in one block, held in the window."""

    unit_index: int
    block_index: int
    place: Place
    start: int
    stop: int
    holds: Sequence[Hold]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """What a lane yielded, and its reader where it stands now."""

    lane: int
    stretches: Sequence[Stretch]
    is_over: bool
    reader: LaneReader

    def parts(self, source: int, epoch: int) -> list[LanePart]:
        """The rows as parts of chunks, and the mark of a lane that is over; waits until they are measured."""
        parts = [_part(self.lane, stretch, hold) for stretch in self.stretches for hold in stretch.holds]
        return [*parts, lane_end(self.lane, source, epoch)] if self.is_over else parts


def _part(lane: int, stretch: Stretch, hold: Hold) -> LanePart:
    return LanePart(
        lane=lane,
        unit_index=stretch.unit_index,
        block_index=stretch.block_index,
        place=stretch.place,
        chunk=hold.future.result(),
        start=max(stretch.start, hold.entry.start) - hold.entry.start,
        stop=min(stretch.stop, hold.entry.stop) - hold.entry.start,
    )


class Measurer:
    """Makes what the window lacks. For any number of threads; a worker never waits for another worker's chunk."""

    def __init__(self, window: Window, num_workers: int) -> None:
        self._window = window
        self._workers = ThreadPoolExecutor(num_workers, thread_name_prefix="loader-work")
        self._lock = threading.Lock()
        self.num_rows = 0
        self.num_tokens = 0

    def hold(
        self, holds: Holds, opened: OpenedSource, place: Place, lane: int, positions: Int64Array, *, is_ahead: bool
    ) -> list[Hold]:
        """Hold the chunks of some rows and start to make those that are missing; waits for nothing.

        Raises:
            UnavailableError: The measurer is closed.
        """
        held, todo = self._window.claim(holds, place, lane, positions, is_ahead=is_ahead)
        for i, entry in enumerate(todo):
            try:
                self._workers.submit(self._make, opened, entry)
            except RuntimeError as error:  # the pool is shut down
                closed = UnavailableError("the loader is stopping")
                for left in todo[i:]:
                    self._window.fail(left, closed)
                raise closed from error
        return held

    def walk(self, holds: Holds, opened: OpenedSource, reader: LaneReader, epoch: int, num_rows: int) -> Walk:
        """Read a lane's next rows, at most `num_rows`, and hold their chunks; waits for reading alone."""
        lane = reader.cursor[0]
        stretches: list[Stretch] = []
        while num_rows > 0:
            found = reader.next_rows(num_rows)
            if found is None:
                return Walk(lane=lane, stretches=stretches, is_over=True, reader=reader)
            place = Place(opened.manifest.ordinal, epoch, found.shard, found.block)
            start, stop = found.pos_start, found.pos_start + len(found.rows)
            held = self.hold(holds, opened, place, lane, np.arange(start, stop), is_ahead=True)
            stretches.append(
                Stretch(
                    unit_index=found.unit_index,
                    block_index=found.block_index,
                    place=place,
                    start=start,
                    stop=stop,
                    holds=held,
                )
            )
            num_rows -= stop - start
        return Walk(lane=lane, stretches=stretches, is_over=False, reader=reader)

    def close(self) -> None:
        """Let running work end, fail what waits. Idempotent."""
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._window.abort(UnavailableError("the loader is stopping"))

    def _make(self, opened: OpenedSource, entry: Entry) -> None:
        try:
            chunk = opened.make(entry.place, entry.start, entry.stop)
        except BaseException as error:
            self._window.fail(entry, error)
            return
        with self._lock:
            self.num_rows += chunk.num_rows
            self.num_tokens += len(chunk.tokens_T)
        self._window.fill(entry, chunk)
