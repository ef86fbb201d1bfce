"""What a Source Loader does for one run: measure rows ahead, keep them, and hand out the pieces that plans name.

# N = pieces of a step
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..sources.cache import BlockCache
from ..sources.lanes import LaneReader
from ..spec.manifest import SourceManifest
from ..spec.run import RunSpec
from ..wire.errors import BadRequestError, UnavailableError
from ..wire.schemas import PIECES
from ..wire.step_plan import WHOLE, Pieces, StepPlan
from .chunk import Int64Array, Place
from .gather import Cargo, gather_pieces
from .metadata import LanePart, lane_end, metadata_batch
from .opened import OpenedSource
from .shelf import BlockShelf
from .window import Entry, Hold, Holds, Window

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows that a lane has met in one block, held in the window."""

    unit_index: int
    block_index: int
    place: Place
    start: int
    stop: int
    holds: list[Hold]


@dataclass(frozen=True, slots=True)
class _Walk:
    """What a lane yielded, and where its reader stands now."""

    lane: int
    stretches: list[_Stretch]
    is_over: bool
    reader: LaneReader


class LoaderEngine:
    """Measures and materializes the samples of one run. For any number of threads.

    Whatever the window has dropped, or never had, is made again from (source, epoch, shard, block, pos): budgets,
    threads and the order of calls never change a byte of an answer.

    Args:
        run: The frozen spec; budgets.window_bytes and budgets.shuffle_bytes bound what is kept.
        manifests: One per source, in ordinal order.
        cache_dir: Where blocks of slow files are kept; None: nowhere.
        workers: Threads that transform; 0: one a core.
    """

    def __init__(
        self, run: RunSpec, manifests: Sequence[SourceManifest], *, cache_dir: Path | None, workers: int = 0
    ) -> None:
        num_workers = workers or os.cpu_count() or 1
        self._run, self._manifests = run, list(manifests)
        self._names = [manifest.name for manifest in manifests]
        self._cache = BlockCache(cache_dir, run.budgets.cache_bytes) if cache_dir is not None else None
        self._window, self._shelf = Window(run.budgets.window_bytes), BlockShelf(run.budgets.shuffle_bytes)
        # Readers wait for workers' results never, and workers for readers' never: the two pools cannot deadlock.
        self._readers = ThreadPoolExecutor(2 * num_workers, thread_name_prefix="loader-read")
        self._workers = ThreadPoolExecutor(num_workers, thread_name_prefix="loader-work")
        self._open_locks = [threading.Lock() for _ in manifests]
        self._opened: dict[int, OpenedSource] = {}
        self._ahead: dict[tuple[int, int, int], Future[None]] = {}
        names = ("rows_measured", "tokens_measured", "pieces_sent", "lanes_read_ahead", "ahead_failures")
        self._counts = dict.fromkeys(names, 0.0)
        self._count_lock = threading.Lock()
        self._is_closed = False

    def measure(self, source: int, epoch: int, cursors: Sequence[list[int]], rows_per_lane: int) -> pa.RecordBatch:
        """Measure the next rows of some lanes, and go on reading ahead behind the answer.

        Args:
            source: Ordinal of the source.
            epoch: Pass over the source.
            cursors: Per lane [lane, unit_index, block_index, next_pos].
            rows_per_lane: Rows of each lane at most.

        Returns:
            METADATA rows, lane by lane in the order of `cursors`; a lane that is over ends with a LANE_END row.

        Raises:
            SourceError: The source is not what it was when the run was created; names the shard.
            UnavailableError: It cannot be reached now.
        """
        opened = self._source(source)
        with self._window.holding() as holds:
            walks = self._walk_all(holds, opened, epoch, cursors, rows_per_lane)
            parts = [part for walk in walks for part in _parts(walk, source, epoch)]
            answer = metadata_batch(parts)
        if self._window.has_room(sum(part.chunk.size_bytes for part in parts)):
            self._read_ahead(opened, epoch, walks, rows_per_lane)
        return answer

    def materialize(self, plans: Sequence[StepPlan]) -> pa.RecordBatch:
        """The pieces of the given plans (or slices of plans), in plan order, as one PIECES batch.

        Raises:
            DataError: A whole sample cannot be read any more and its length is not known; names source, shard, row.
            UnavailableError: A source cannot be reached now.
        """
        batches = [self._materialize_step(plan) for plan in plans]
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches([pa.RecordBatch.from_pylist([], PIECES), *batches])

    def release(self, plan: StepPlan) -> None:
        """Note that every rank has this step: rows whose pieces are all delivered leave the window."""
        for place, _, part in _by_place(plan.pieces):
            pos, first, num = plan.pieces.pos[part], plan.pieces.first_token[part], plan.pieces.num_tokens[part]
            self._window.deliver(place, pos, np.where(num == WHOLE, -1, first + num))

    def stats(self) -> dict[str, float]:
        """Counters and sizes, for people."""
        return self._counts | {
            "window_bytes": float(self._window.size_bytes),
            "window_evictions": float(self._window.num_evictions),
            "shelf_bytes": float(self._shelf.size_bytes),
            "blocks_read": float(self._shelf.num_reads),
            "sources_open": float(len(self._opened)),
        }

    def close(self) -> None:
        """Stop reading ahead and close the sources; running calls fail. Idempotent."""
        self._is_closed = True
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._window.abort(UnavailableError(f"the loader of run {self._run.run!r} is closed"))
        opened, self._opened = self._opened, {}
        for source in opened.values():
            source.close()

    def __enter__(self) -> LoaderEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _source(self, ordinal: int) -> OpenedSource:
        if not 0 <= ordinal < len(self._manifests):
            raise BadRequestError(f"source must be in [0, {len(self._manifests)}), got {ordinal}")
        with self._open_locks[ordinal]:
            if ordinal not in self._opened:
                if self._is_closed:
                    raise UnavailableError(f"the loader of run {self._run.run!r} is closed")
                manifest = self._manifests[ordinal]
                self._opened[ordinal] = OpenedSource(self._run, manifest, self._shelf, self._cache)
            return self._opened[ordinal]

    def _walk_all(
        self, holds: Holds, opened: OpenedSource, epoch: int, cursors: Sequence[list[int]], rows_per_lane: int
    ) -> list[_Walk]:
        tasks = [
            self._readers.submit(self._walk, holds, opened, epoch, c[0], opened.lane(epoch, c), rows_per_lane)
            for c in cursors
        ]
        wait(tasks)  # all of them, even if one fails: they claim entries for `holds`
        return [task.result() for task in tasks]

    def _walk(
        self, holds: Holds, opened: OpenedSource, epoch: int, lane: int, reader: LaneReader, num_rows: int
    ) -> _Walk:
        """Read a lane's next rows and have those measured that are not yet; runs in the pool of readers."""
        stretches: list[_Stretch] = []
        while num_rows > 0:
            found = reader.next_rows(num_rows)
            if found is None:
                return _Walk(lane, stretches, True, reader)
            place = Place(opened.manifest.ordinal, epoch, found.shard, found.block)
            start, stop = found.pos_start, found.pos_start + len(found.rows)
            held = self._claim(holds, opened, place, lane, np.arange(start, stop), is_ahead=True)
            stretches.append(_Stretch(found.unit_index, found.block_index, place, start, stop, held))
            num_rows -= stop - start
        return _Walk(lane, stretches, False, reader)

    def _claim(
        self, holds: Holds, opened: OpenedSource, place: Place, lane: int, positions: Int64Array, *, is_ahead: bool
    ) -> list[Hold]:
        """Hold the chunks of some rows and start to make what is missing."""
        held, todo = self._window.claim(holds, place, lane, positions, is_ahead=is_ahead)
        for i, entry in enumerate(todo):
            try:
                self._workers.submit(self._make, opened, entry)
            except RuntimeError as error:  # the pool is shut down
                for left in todo[i:]:
                    self._window.fail(left, UnavailableError("the loader is stopping"))
                raise UnavailableError("the loader is stopping") from error
        return held

    def _make(self, opened: OpenedSource, entry: Entry) -> None:
        try:
            chunk = opened.make(entry.place, entry.start, entry.stop)
        except BaseException as error:
            self._window.fail(entry, error)
            return
        self._count(rows_measured=chunk.num_rows, tokens_measured=len(chunk.tokens_T))
        self._window.fill(entry, chunk)

    def _read_ahead(self, opened: OpenedSource, epoch: int, walks: Iterable[_Walk], rows_per_lane: int) -> None:
        """Go on with the lanes just measured: one request's worth and no further."""
        for walk in walks:
            key = (opened.manifest.ordinal, epoch, walk.lane)
            running = self._ahead.get(key)
            if walk.is_over or (running is not None and not running.done()):
                continue
            self._count(lanes_read_ahead=1)
            self._ahead[key] = self._readers.submit(self._walk_ahead, opened, epoch, walk, rows_per_lane)

    def _walk_ahead(self, opened: OpenedSource, epoch: int, walk: _Walk, num_rows: int) -> None:
        try:
            with self._window.holding() as holds:
                self._walk(holds, opened, epoch, walk.lane, walk.reader, num_rows)
        except Exception as error:  # whoever asks for these rows will meet it
            self._count(ahead_failures=1)
            LOG.debug("reading ahead in source %s lane %d: %s", opened.manifest.name, walk.lane, error)

    def _materialize_step(self, plan: StepPlan) -> pa.RecordBatch:
        pieces = plan.pieces
        held: list[Hold] = []
        chunk_N = np.zeros(len(pieces), np.int64)
        with self._window.holding() as holds:
            for place, lane, part in _by_place(pieces):
                positions = pieces.pos[part]
                found = self._claim(
                    holds, self._source(place.source), place, lane, np.unique(positions), is_ahead=False
                )
                starts = np.array([hold.entry.start for hold in found], np.int64)
                chunk_N[part] = len(held) + np.searchsorted(starts, positions, side="right") - 1
                held += found
            chunks = [hold.future.result() for hold in held]
            cargo = Cargo(chunks=chunks, planned_M=[hold.lengths_N() for hold in held], chunk_N=chunk_N)
            self._count(pieces_sent=len(pieces))
            return gather_pieces(plan.step, pieces, cargo, source_names=self._names)

    def _count(self, **amounts: float) -> None:
        with self._count_lock:
            for name, amount in amounts.items():
                self._counts[name] += amount


def _parts(walk: _Walk, source: int, epoch: int) -> list[LanePart]:
    """The walked rows as parts of chunks; waits until they are made."""
    parts = [
        LanePart(
            lane=walk.lane,
            unit_index=stretch.unit_index,
            block_index=stretch.block_index,
            place=stretch.place,
            chunk=hold.future.result(),
            start=max(stretch.start, hold.entry.start) - hold.entry.start,
            stop=min(stretch.stop, hold.entry.stop) - hold.entry.start,
        )
        for stretch in walk.stretches
        for hold in stretch.holds
    ]
    return [*parts, lane_end(walk.lane, source, epoch)] if walk.is_over else parts


def _by_place(p: Pieces) -> list[tuple[Place, int, slice]]:
    """Runs of pieces that lie in one block: where, which lane takes them, and their slice."""
    if not len(p):
        return []
    columns = (p.source, p.epoch, p.shard, p.block)
    changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(p)]
    return [(Place(*(int(c[a]) for c in columns)), int(p.lane[a]), slice(a, b)) for a, b in itertools.pairwise(starts)]
