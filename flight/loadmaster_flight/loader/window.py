"""A byte-budgeted store of measured chunks: kept from measuring to delivery, evicted under pressure, made again.

An entry is being made (a future that is not done), resident (a chunk), or evicted (its lengths alone, so that the same
rows are made again as they were).
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np

from .chunk import CHUNK_ROWS, Chunk, Int64Array, Place
from .entry import Entry, Hold, Holds

MAX_GAP_ROWS = 8
"""Rows that nobody asked for are made too when they lie in a gap no longer than this."""
MAX_EVICTED = 1 << 16
"""Evicted entries that are remembered; beyond it the oldest are forgotten."""
MAX_EVICTED_MEDIA = 1 << 11
"""Likewise where they have media, of which more must be remembered than a length."""


class Window:
    """Measured chunks within `budget_bytes`, for any number of threads.

    Over budget it drops what was delivered, then what is left over behind the deliveries, then the newest: what is
    farthest in the future. Pinned entries stay, so one caller's working set may exceed the budget and go on.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._entries: dict[Place, list[Entry]] = {}  # disjoint, by start
        self._lanes: dict[tuple[int, int, int], set[Entry]] = {}
        self._resident: set[Entry] = set()
        self._evicted: dict[Entry, None] = {}
        self._done: set[Entry] = set()  # delivered, not dropped yet
        self._size_bytes, self._newest, self._oldest = 0, 0, 0
        self.peak_bytes = 0
        self.num_evictions = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all resident chunks."""
        return self._size_bytes

    @property
    def budget_bytes(self) -> int:
        """What they may take, with what was lent."""
        return self._budget_bytes

    def has_room(self, more_bytes: int) -> bool:
        """Whether that much may come in ahead of need; not while the window is about as full as evicting leaves it."""
        return self._size_bytes + more_bytes <= self._budget_bytes - self._budget_bytes // 8

    def lend(self, more_bytes: int) -> None:
        """Raise the budget by what is held for others; a negative number takes it back."""
        with self._lock:
            self._budget_bytes += more_bytes
            self._shrink()

    @contextmanager
    def holding(self) -> Iterator[Holds]:
        """A scope whose holds are released at its end."""
        holds = Holds()
        try:
            yield holds
        finally:
            self.release(holds.all)

    def release(self, holds: Iterable[Hold]) -> None:
        """Let go of what `claim` pinned."""
        self.unpin(hold.entry for hold in holds)

    def unpin(self, entries: Iterable[Entry]) -> None:
        """`release`, for who keeps no hold: a hold keeps its chunk in memory."""
        with self._lock:
            for entry in entries:
                entry.pins -= 1
            self._shrink()

    def claim(
        self,
        holds: Holds,
        place: Place,
        lane: int,
        positions: Int64Array,
        *,
        is_ahead: bool,
        chunk_rows: int = CHUNK_ROWS,
    ) -> tuple[list[Hold], list[Entry]]:
        """Pin entries that cover `positions`.

        Args:
            holds: Releases them in the end.
            place: Where the rows are.
            lane: The lane that takes them.
            positions: Int64, ascending.
            is_ahead: Whether the rows are read ahead of need (new entries are the newest, the first to be evicted), or
                needed at once (new entries are the oldest).
            chunk_rows: Most rows of a new entry.

        Returns:
            The holds, by position, and the entries that the caller must `fill` or `fail`.
        """
        with self._lock:
            entries = list(self._covering(place, lane, positions, is_ahead, chunk_rows))
            todo = [self._begin(entry) for entry in entries if entry.future is None]
            found = [Hold(entry, entry.future) for entry in entries if entry.future is not None]
            for entry in entries:
                entry.pins += 1
            holds.all += found
        return found, todo

    def fill(self, entry: Entry, chunk: Chunk) -> None:
        """Hand in what a claimed entry lacked."""
        with self._lock:
            if entry.lengths_N is None:
                entry.lengths_N, entry.media = chunk.lengths_N, chunk.media
            entry.chunk, future = chunk, entry.future
            self._resident.add(entry)
            self._size_bytes += chunk.size_bytes
            self.peak_bytes = max(self.peak_bytes, self._size_bytes)
            self._shrink(newer_than=entry.rank)  # what is older than this is not given up for it
        if future is not None:
            future.set_result(chunk)

    def fail(self, entry: Entry, error: BaseException) -> None:
        """Say that a claimed entry could not be made: its holders get `error`, the next claim tries again."""
        with self._lock:
            future, entry.future = entry.future, None
            if entry.lengths_N is None:
                self._forget(entry)
            else:
                self._evicted[entry] = None
        if future is not None:
            future.set_exception(error)

    def abort(self, error: BaseException) -> None:
        """Fail whatever is being made: nobody will make it any more."""
        with self._lock:
            entries = [entry for of_place in self._entries.values() for entry in of_place]
        for entry in entries:
            if entry.chunk is None and entry.future is not None:
                self.fail(entry, error)

    def deliver(self, place: Place, positions: Int64Array, ends: Int64Array) -> None:
        """Note pieces that every rank has; entries whose rows are all delivered are dropped.

        Args:
            place: Where the rows are.
            positions: Int64, ascending; unknown ones are passed over.
            ends: First token after each piece, -1 for a whole sample.
        """
        with self._lock:
            for entry in self._entries_at(place, positions):
                first, last = np.searchsorted(positions, (entry.start, entry.stop))
                self._count(entry, positions[first:last], ends[first:last])
            self._shrink()

    def _count(self, entry: Entry, positions: Int64Array, ends: Int64Array) -> None:
        if entry.lengths_N is None:
            return
        lengths = entry.lengths_N[positions - entry.start]
        entry.num_delivered += int(np.count_nonzero((ends < 0) | (ends >= lengths)))
        if entry.num_delivered >= int(np.count_nonzero(entry.lengths_N >= 0)):
            self._finish(entry)

    def _finish(self, entry: Entry) -> None:
        """All rows are delivered; what its lane still holds from earlier is left over (rows that no plan wanted)."""
        entry.is_done = True
        for older in self._lane_of(entry):
            older.is_stale |= older.rank < entry.rank
        if entry in self._evicted:
            self._forget(entry)
        else:
            self._done.add(entry)

    def _entries_at(self, place: Place, positions: Int64Array) -> list[Entry]:
        entries = self._entries.get(place, [])
        first = bisect.bisect_right(entries, int(positions[0]), key=lambda e: e.start) if len(positions) else 0
        after = bisect.bisect_right(entries, int(positions[-1]), key=lambda e: e.start) if len(positions) else 0
        return [e for e in entries[max(0, first - 1) : after] if e.stop > positions[0]]

    def _covering(
        self, place: Place, lane: int, positions: Int64Array, is_ahead: bool, chunk_rows: int
    ) -> Iterator[Entry]:
        """Existing entries and new ones for the gaps between them, by position."""
        entries, i = self._entries.setdefault(place, []), 0
        while i < len(positions):
            pos = int(positions[i])
            at = bisect.bisect_right(entries, pos, key=lambda e: e.start)
            if at and entries[at - 1].stop > pos:
                entry = entries[at - 1]
            else:
                limit = entries[at].start if at < len(entries) else pos + chunk_rows
                stop = _run_end(positions[i:], min(limit, pos + chunk_rows))
                entry = Entry(place, lane, pos, stop, self._next_rank(is_ahead))
                entries.insert(at, entry)
                self._lane_of(entry).add(entry)
            yield entry
            i = int(np.searchsorted(positions, entry.stop))

    def _next_rank(self, is_ahead: bool) -> int:
        if is_ahead:
            self._newest += 1
            return self._newest
        self._oldest -= 1
        return self._oldest

    def _begin(self, entry: Entry) -> Entry:
        entry.future = Future()
        self._evicted.pop(entry, None)
        return entry

    def _shrink(self, *, newer_than: int | None = None) -> None:
        for entry in [e for e in self._done if not e.pins and e.chunk is not None]:
            self._evict(entry)
        if self._size_bytes <= self._budget_bytes:
            return
        goal_bytes = self._budget_bytes - self._budget_bytes // 16  # not one sort for each chunk that comes in
        idle = [e for e in self._resident if not e.pins and (newer_than is None or e.is_stale or e.rank > newer_than)]
        for entry in sorted(idle, key=lambda e: (not e.is_stale, -e.rank)):
            if self._size_bytes <= goal_bytes:
                break
            self.num_evictions += 1
            self._evict(entry)

    def _evict(self, entry: Entry) -> None:
        assert entry.chunk is not None, "only resident entries are evicted"
        self._resident.discard(entry)
        self._size_bytes -= entry.chunk.size_bytes
        entry.chunk = entry.future = None
        if entry.is_done or entry.is_stale:
            self._forget(entry)
            return
        self._evicted[entry] = None
        while len(self._evicted) > (MAX_EVICTED if entry.media is None else MAX_EVICTED_MEDIA):
            self._forget(next(iter(self._evicted)))

    def _forget(self, entry: Entry) -> None:
        self._evicted.pop(entry, None)
        self._done.discard(entry)
        entries = self._entries.get(entry.place, [])
        if entry in entries:
            entries.remove(entry)
        if not entries:
            self._entries.pop(entry.place, None)
        lane = self._lane_of(entry)
        lane.discard(entry)
        if not lane:
            del self._lanes[entry.place.source, entry.place.epoch, entry.lane]

    def _lane_of(self, entry: Entry) -> set[Entry]:
        return self._lanes.setdefault((entry.place.source, entry.place.epoch, entry.lane), set())


def _run_end(positions: Int64Array, limit: int) -> int:
    """Where the run that begins at positions[0] ends: below `limit`, and before a gap longer than MAX_GAP_ROWS."""
    inside = positions[: int(np.searchsorted(positions, limit))]
    gaps = np.flatnonzero(np.diff(inside) > MAX_GAP_ROWS)
    return int(inside[gaps[0]] if len(gaps) else inside[-1]) + 1
