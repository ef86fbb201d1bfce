"""What a Source Loader does for one run: measure rows ahead, keep them, and hand out the pieces that plans name.

# N = pieces of a step
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..sources.cache import BlockCache
from ..sources.lanes import LanePath
from ..sources.metering import Readings
from ..spec.manifest import SourceManifest
from ..spec.run import BudgetSpec, RunSpec
from ..wire.control import SourceReport
from ..wire.errors import BadRequestError, UnavailableError
from ..wire.schemas import PIECES
from ..wire.step_plan import WHOLE, Pieces, StepPlan
from ..wire.tickets import ShowTicket
from .chunk import Int64Array, Place
from .crashes import CrashRecord
from .entry import Hold, Holds
from .gather import Cargo, gather_pieces
from .measuring import Measurer, Walk
from .media import MediaLoader, Wanted
from .metadata import metadata_batch
from .opened import OpenedSource
from .pool import WorkerPool
from .reporting import SourceReporter, WorkerClock
from .shelf import BlockShelf
from .showing import show
from .window import Window

TOKEN_BYTES = 4
LookAgain = Callable[[], tuple[RunSpec, list[SourceManifest]]]
LOG = logging.getLogger(__name__)


class LoaderEngine:
    """Measures and materializes the samples of one run. For any number of threads.

    Whatever the window has dropped, or never had, is made again from (source, epoch, shard, block, pos): budgets,
    threads and the order of calls never change a byte of an answer.

    Args:
        run: The frozen spec; budgets.window_bytes and budgets.shuffle_bytes bound what is kept.
        manifests: One per source, in ordinal order.
        cache_dir: Where blocks of slow files are kept; None: nowhere.
        workers: Threads that transform and decode; 0: one a core.
        crashes: Notes which media are open, so that none can end two processes; None: nobody does.

    Attributes:
        look_again: The run as it is now, for when a source is asked for that is not known; None: there are no others.
    """

    def __init__(
        self,
        run: RunSpec,
        manifests: Sequence[SourceManifest],
        *,
        cache_dir: Path | None,
        workers: int = 0,
        crashes: CrashRecord | None = None,
    ) -> None:
        num_workers = workers or os.cpu_count() or 1
        self._run, self._manifests, self._crashes = run, list(manifests), crashes
        self._names = [manifest.name for manifest in manifests]
        self._cache = BlockCache(cache_dir, run.budgets.cache_bytes) if cache_dir is not None else None
        window_bytes, again_bytes, decoded_bytes = _shares(run)
        self._window, self._shelf = Window(window_bytes), BlockShelf(run.budgets.shuffle_bytes)
        self._again = BlockShelf(again_bytes)
        # No reader waits for a worker's result, and no worker for a reader's: the two pools cannot deadlock.
        self._readers = WorkerPool(2 * num_workers, "loader-read")
        self._measurer = Measurer(self._window, num_workers)
        self._clock = WorkerClock(
            num_workers, lambda: self._measurer.busy_s, lambda: not self._window.has_room(TOKEN_BYTES)
        )
        self._reporter = SourceReporter(run.run)
        self._media = MediaLoader(source_of=self._source, submit=self._measurer.submit, budget_bytes=decoded_bytes)
        self.look_again: LookAgain | None = None
        self._growing = threading.Lock()
        self._open_locks = [threading.Lock() for _ in manifests]
        self._opened: dict[int, OpenedSource] = {}
        self._ahead: dict[tuple[int, int], Future[Walk]] = {}
        self._counts = dict.fromkeys(("pieces_sent", "lanes_read_ahead", "ahead_failures"), 0.0)
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
        walks = self._walk_all(opened, epoch, cursors, rows_per_lane)
        parts = [part for walk in walks for part in walk.parts(source, epoch)]
        if self._window.has_room(sum(part.num_tokens * TOKEN_BYTES for part in parts)):
            self._read_ahead(opened, epoch, walks, rows_per_lane)
        return metadata_batch(parts)

    def materialize(
        self,
        plans: Sequence[StepPlan],
        *,
        dp_ranks: Collection[int] | None = None,
        encoder_ranks: Collection[int] | None = None,
    ) -> pa.RecordBatch:
        """The pieces of the given plans (or slices of plans), in plan order, as one PIECES batch.

        Args:
            plans: In order.
            dp_ranks: Where the plans say who encodes images: whose documents are built; None: all.
            encoder_ranks: Likewise, ranks of the mesh whose images are wanted; None: all.

        Raises:
            DataError: A whole sample cannot be read any more and its length is not known; names source, shard, row.
            UnavailableError: A source cannot be reached now.
        """
        batches = [self._materialize_step(plan, Wanted.of_plan(plan, dp_ranks, encoder_ranks)) for plan in plans]
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches([pa.RecordBatch.from_pylist([], PIECES), *batches])

    def show(self, ticket: ShowTicket) -> pa.RecordBatch:
        """What people want to know of some samples: see `showing.show`."""
        return show(self._source(ticket.source), ticket)

    @property
    def budgets(self) -> BudgetSpec:
        """The run's budgets and horizons."""
        return self._run.budgets

    def open_source(self, source: int) -> None:
        """Open a source before anything of it is asked for.

        Raises:
            SourceError: It is not what it was when the run was created; names the shard.
        """
        self._source(source)

    def hold_ahead(self, plan: StepPlan) -> list[Hold]:
        """Have the samples of a step (or a slice of it) in the window until `let_go`; not before what is needed now.

        Raises:
            LoadmasterError: They cannot be made now; nothing is held then.
        """
        holds = Holds()
        try:
            held, _ = self._hold_pieces(holds, plan.pieces, is_urgent=False)
            for hold in held:
                hold.future.result()
        except BaseException:
            self._window.release(holds.all)
            raise
        return holds.all

    def let_go(self, holds: Sequence[Hold]) -> None:
        """End what `hold_ahead` began."""
        self._window.release(holds)

    def lend(self, more_bytes: int) -> None:
        """Add to the window's budget what is held ahead for others, or take it back."""
        self._window.lend(more_bytes)

    def release(self, plan: StepPlan) -> None:
        """Note that every rank has this step: rows whose pieces are all delivered leave the window."""
        for place, _, part in _by_place(plan.pieces):
            pos, first, num = plan.pieces.pos[part], plan.pieces.first_token[part], plan.pieces.num_tokens[part]
            self._window.deliver(place, pos, np.where(num == WHOLE, -1, first + num))
        self._media.release(plan)

    def stats(self) -> dict[str, float]:
        """Counters and sizes, for people."""
        return (
            self._counts
            | self._clock.read()
            | {
                "rows_measured": float(self._measurer.num_rows),
                "tokens_measured": float(self._measurer.num_tokens),
                "window_bytes": float(self._window.size_bytes),
                "window_peak_bytes": float(self._window.peak_bytes),
                "window_evictions": float(self._window.num_evictions),
                "decoded_bytes": float(self._media.decoded.size_bytes),
                "shelf_bytes": float(self._shelf.size_bytes + self._again.size_bytes),
                "blocks_read": float(self._shelf.num_reads),
                "blocks_read_again": float(self._again.num_reads),
                "sources_open": float(len(self._opened)),
            }
        )

    def window_budget_bytes(self) -> int:
        """What the window may hold now."""
        return self._window.budget_bytes

    def readings(self) -> dict[str, Readings]:
        """How each source that is open was read so far, by its name."""
        return {opened.manifest.name: opened.meter.look() for opened in list(self._opened.values())}

    def left_out(self) -> dict[tuple[str, str], int]:
        """Rows that measuring found not to be OK, by source and verdict; those measured again count again."""
        found = self._measurer.left_out()
        return {(self._names[source], verdict.name.lower()): num for (source, verdict), num in found.items()}

    def source_report(self) -> SourceReport | None:
        """How sources are read that there is news of; None: there is none. One thread calls it."""
        return self._reporter.report({ordinal: opened.meter for ordinal, opened in list(self._opened.items())})

    def close(self) -> None:
        """Stop reading ahead and close the sources; running calls fail. Idempotent."""
        self._is_closed = True
        for source in list(self._opened.values()):
            source.close()  # first: it ends waits for lost storage
        self._readers.close()
        self._measurer.close()

    def __enter__(self) -> LoaderEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_sources(self, run: RunSpec, manifests: Sequence[SourceManifest]) -> None:
        """Take more sources in: those behind the ones that are known. Any thread may call it.

        Args:
            run: The run's spec with them.
            manifests: Of all sources, in ordinal order.
        """
        with self._growing:
            more = manifests[len(self._manifests) :]
            if not more:  # an answer that was on its way longer than one that knew more
                return
            self._run = run
            self._names += [manifest.name for manifest in more]
            self._open_locks += [threading.Lock() for _ in more]
            self._manifests += more

    def _source(self, ordinal: int) -> OpenedSource:
        if ordinal >= len(self._manifests) and self.look_again is not None:
            self.add_sources(*self.look_again())
        if not 0 <= ordinal < len(self._manifests):
            raise BadRequestError(f"source must be in [0, {len(self._manifests)}), got {ordinal}")
        with self._open_locks[ordinal]:
            if ordinal not in self._opened:
                if self._is_closed:
                    raise self._closed()
                manifest = self._manifests[ordinal]
                self._opened[ordinal] = OpenedSource(
                    self._run, manifest, self._shelf, self._cache, again=self._again, crashes=self._crashes
                )
            return self._opened[ordinal]

    def _walk_all(
        self, opened: OpenedSource, epoch: int, cursors: Sequence[list[int]], rows_per_lane: int
    ) -> list[Walk]:
        paths = [opened.lane(epoch, cursor) for cursor in cursors]
        tasks = [self._walk(opened, path, epoch, rows_per_lane, is_urgent=True) for path in paths]
        wait(tasks)
        try:
            return [task.result() for task in tasks]
        except CancelledError as error:
            raise self._closed() from error

    def _walk(
        self, opened: OpenedSource, path: LanePath, epoch: int, num_rows: int, *, is_urgent: bool
    ) -> Future[Walk]:
        walk = partial(self._measurer.walk, opened, path, epoch, num_rows, is_urgent=is_urgent)
        try:
            return self._readers.submit(walk, is_urgent=is_urgent)
        except RuntimeError as error:
            raise self._closed() from error

    def _closed(self) -> UnavailableError:
        return UnavailableError(f"the loader of run {self._run.run!r} is closed")

    def _read_ahead(self, opened: OpenedSource, epoch: int, walks: Iterable[Walk], rows_per_lane: int) -> None:
        """Go on with the lanes just measured: one request's worth and no further."""
        for walk in walks:
            key = (opened.manifest.ordinal, walk.lane)
            running = self._ahead.get(key)
            if walk.is_over or (running is not None and not running.done()):
                continue
            self._count(lanes_read_ahead=1)
            ahead = self._ahead[key] = self._walk(opened, walk.path, epoch, rows_per_lane, is_urgent=False)
            ahead.add_done_callback(partial(self._note_ahead, opened.manifest.name))

    def _note_ahead(self, source: str, ahead: Future[Walk]) -> None:
        """Failures are not reported: whoever asks for these rows will meet them."""
        if not ahead.cancelled() and (error := ahead.exception()) is not None:
            self._count(ahead_failures=1)
            LOG.debug("reading ahead in source %s: %s", source, error)

    def _materialize_step(self, plan: StepPlan, wanted: Wanted) -> pa.RecordBatch:
        with self._window.holding() as holds:
            held, chunk_N = self._hold_pieces(holds, plan.pieces)
            chunks = [hold.future.result() for hold in held]
            planned_M = [hold.lengths_N() for hold in held]
            cargo = Cargo(
                chunks=chunks,
                planned_M=planned_M,
                chunk_N=chunk_N,
                masked=plan.masked,
                has_tokens_N=wanted.has_tokens_N,
                media=self._media.load(plan, wanted, chunks, [hold.media for hold in held], chunk_N),
            )
            self._count(pieces_sent=len(plan.pieces))
            return gather_pieces(plan.step, plan.pieces, cargo, source_names=self._names)

    def _hold_pieces(self, holds: Holds, pieces: Pieces, *, is_urgent: bool = True) -> tuple[list[Hold], Int64Array]:
        """Hold the chunks of all pieces: the holds, and which of them each piece is in."""
        held: list[Hold] = []
        chunk_N = np.zeros(len(pieces), np.int64)
        for place, lane, part in _by_place(pieces):
            positions, opened = pieces.pos[part], self._source(place.source)
            found = self._measurer.hold(
                holds, opened, place, lane, np.unique(positions), is_ahead=False, is_urgent=is_urgent
            )
            starts = [hold.entry.start for hold in found]
            chunk_N[part] = len(held) + np.searchsorted(starts, positions, side="right") - 1
            held += found
        return held, chunk_N

    def _count(self, **amounts: float) -> None:
        with self._count_lock:
            for name, amount in amounts.items():
                self._counts[name] += amount


def _shares(run: RunSpec) -> tuple[int, int, int]:
    """What window_bytes is divided into: measured samples, blocks read again for their media, decoded samples.

    Rows with media are small once they are measured, and their files are not.
    """
    whole = run.budgets.window_bytes
    has_media = run.media.vision is not None or run.media.audio is not None
    return (whole // 4, whole // 2, whole // 4) if has_media else (whole, 0, 0)


def _by_place(p: Pieces) -> list[tuple[Place, int, slice]]:
    """Runs of pieces that lie in one block: where, which lane takes them, and their slice."""
    if not len(p):
        return []
    columns = (p.source, p.epoch, p.shard, p.block)
    changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(p)]
    return [(Place(*(int(c[a]) for c in columns)), int(p.lane[a]), slice(a, b)) for a, b in itertools.pairwise(starts)]
