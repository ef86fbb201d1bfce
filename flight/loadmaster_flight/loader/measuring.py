"""Having rows measured: chunks are made in a pool of workers, each one once, and held in the window meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from ..sources.lanes import LanePath, LaneStretch
from ..wire.errors import UnavailableError
from ..wire.schemas import Verdict
from .chunk import Chunk, Int64Array, Place
from .entry import Entry, Hold, Holds
from .metadata import LanePart, lane_end
from .opened import OpenedSource
from .pool import WorkerPool
from .window import Window

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """What is or will be known of the rows of an entry; keeps nothing in the window.

    Attributes:
        start: First position of the entry.
        stop: Position behind its last one.
        chunk: The chunk without its tokens.
    """

    start: int
    stop: int
    chunk: Future[Chunk]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Positions that a lane has met in one block."""

    place: Place
    stretch: LaneStretch
    glimpses: Sequence[Glimpse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """What a lane yielded, and its path where it stands now."""

    lane: int
    measurements: Sequence[Measurement]
    is_over: bool
    path: LanePath

    def parts(self, source: int, epoch: int) -> list[LanePart]:
        """The rows as parts of chunks, and the mark of a lane that is over; waits until they are measured."""
        parts = [_part(self.lane, found, glimpse) for found in self.measurements for glimpse in found.glimpses]
        return [*parts, lane_end(self.lane, source, epoch)] if self.is_over else parts


def _part(lane: int, found: Measurement, glimpse: Glimpse) -> LanePart:
    return LanePart(
        lane=lane,
        unit_index=found.stretch.unit_index,
        block_index=found.stretch.block_index,
        place=found.place,
        chunk=glimpse.chunk.result(),
        start=max(found.stretch.start, glimpse.start) - glimpse.start,
        stop=min(found.stretch.stop, glimpse.stop) - glimpse.start,
    )


class Measurer:
    """Makes what the window lacks. For any number of threads; a worker never waits for another worker's chunk.

    Attributes:
        num_rows, num_tokens: Measured so far, those made again included.
    """

    def __init__(self, window: Window, num_workers: int) -> None:
        self._window = window
        self._workers = WorkerPool(num_workers, "loader-work")
        self._lock = threading.Lock()
        self._jobs: dict[Entry, Future[None]] = {}
        self.num_rows = 0
        self.num_tokens = 0
        self._left_out: Counter[tuple[int, int]] = Counter()

    def hold(
        self,
        holds: Holds,
        opened: OpenedSource,
        place: Place,
        lane: int,
        positions: Int64Array,
        *,
        is_ahead: bool,
        is_urgent: bool = True,
    ) -> list[Hold]:
        """Hold the chunks of some rows and start to make those that are missing; waits for nothing.

        Args:
            is_ahead: As for `Window.claim`.
            is_urgent: Somebody waits for them: they are made before what is not urgent.

        Raises:
            UnavailableError: The measurer is closed.
        """
        chunk_rows = opened.rows_per_chunk(place)
        held, todo = self._window.claim(holds, place, lane, positions, is_ahead=is_ahead, chunk_rows=chunk_rows)
        for i, entry in enumerate(todo):
            try:
                self._start(opened, entry, is_urgent)
            except RuntimeError as error:  # the pool is shut down
                closed = UnavailableError("the loader is stopping")
                for left in todo[i:]:
                    self._window.fail(left, closed)
                raise closed from error
        if is_urgent:
            self._hasten(hold.entry for hold in held if not hold.future.done())
        return held

    def walk(self, opened: OpenedSource, path: LanePath, epoch: int, num_rows: int, *, is_urgent: bool) -> Walk:
        """Follow a lane for at most `num_rows` rows and have them measured; waits for reading alone."""
        lane = path.cursor[0]
        found: list[Measurement] = []
        while num_rows > 0:
            stretch = path.next_stretch(num_rows)
            if stretch is None:
                return Walk(lane=lane, measurements=found, is_over=True, path=path)
            place = Place(opened.manifest.ordinal, epoch, stretch.shard, stretch.block)
            positions, holds = np.arange(stretch.start, stretch.stop), Holds()
            held = self.hold(holds, opened, place, lane, positions, is_ahead=True, is_urgent=is_urgent)
            found.append(Measurement(place=place, stretch=stretch, glimpses=[self._glimpse(hold) for hold in held]))
            num_rows -= stretch.stop - stretch.start
        return Walk(lane=lane, measurements=found, is_over=False, path=path)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a call run by a worker, before what is not urgent.

        Raises:
            UnavailableError: The measurer is closed.
        """
        try:
            return self._workers.submit(call, is_urgent=True)
        except RuntimeError as error:
            raise UnavailableError("the loader is stopping") from error

    @property
    def busy_s(self) -> float:
        """Seconds that the workers have worked, all together."""
        return self._workers.busy_s

    def left_out(self) -> dict[tuple[int, Verdict], int]:
        """Rows measured so far that are not OK, by source and verdict, those made again included."""
        with self._lock:
            return {(source, Verdict(verdict)): num for (source, verdict), num in self._left_out.items()}

    def close(self) -> None:
        """Let running work end, fail what waits. Idempotent."""
        self._workers.close()
        self._window.abort(UnavailableError("the loader is stopping"))

    def _start(self, opened: OpenedSource, entry: Entry, is_urgent: bool) -> None:
        with self._lock:
            self._jobs[entry] = self._workers.submit(partial(self._make, opened, entry), is_urgent=is_urgent)

    def _hasten(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            with self._lock:
                job = self._jobs.get(entry)
            if job is not None:
                self._workers.hasten(job)

    def _glimpse(self, hold: Hold) -> Glimpse:
        """Let go of a chunk as soon as it is there, or a request for large rows would hold all of them at once."""
        seen: Future[Chunk] = Future()
        hold.future.add_done_callback(partial(_see, seen, partial(self._window.unpin, [hold.entry])))
        return Glimpse(start=hold.entry.start, stop=hold.entry.stop, chunk=seen)

    def _make(self, opened: OpenedSource, entry: Entry) -> None:
        try:
            chunk = opened.make(entry.place, entry.start, entry.stop, is_again=entry.lengths_N is not None)
        except BaseException as error:
            self._end(entry)
            self._window.fail(entry, error)
            return
        self._end(entry)
        with self._lock:
            self.num_rows += chunk.num_rows
            self.num_tokens += len(chunk.tokens_T)
            if chunk.verdict_N.any():
                verdicts = chunk.verdict_N[chunk.verdict_N != Verdict.OK].tolist()
                self._left_out.update((entry.place.source, verdict) for verdict in verdicts)
        self._window.fill(entry, chunk)

    def _end(self, entry: Entry) -> None:
        with self._lock:
            self._jobs.pop(entry, None)


def _see(seen: Future[Chunk], let_go: Callable[[], None], made: Future[Chunk]) -> None:
    error = made.exception()
    if error is not None:
        seen.set_exception(error)
    else:
        seen.set_result(made.result().without_tokens())
    let_go()
