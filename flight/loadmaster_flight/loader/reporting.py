"""What a loader tells the planner of its sources, and of its own time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields

from ..sources.metering import Readings, ReadMeter
from ..wire.control import SourceReport
from ..wire.stages import BLOCKED, BUSY, IDLE

ALL_EVERY_S = 10.0
"""So often all sources are told, or a planner that has restarted would know only those that are read again."""
_COLUMNS = [field.name for field in fields(Readings)]


class SourceReporter:
    """Reports of one run's sources: those with news, and now and then all. One thread calls it."""

    def __init__(self, run: str) -> None:
        self._run, self._told, self._all_s = run, dict[int, int](), 0.0

    def report(self, meters: Mapping[int, ReadMeter], *, now_s: float | None = None) -> SourceReport | None:
        """What is to be told now; None: nothing."""
        now_s = time.monotonic() if now_s is None else now_s
        is_all = now_s - self._all_s >= ALL_EVERY_S
        versions = {source: meter.version for source, meter in meters.items()}
        wanted = sorted(source for source, version in versions.items() if is_all or self._told.get(source) != version)
        self._told |= versions
        self._all_s = now_s if is_all else self._all_s
        if not wanted:
            return None
        found = [meters[source].look() for source in wanted]
        columns = {name: [getattr(readings, name) for readings in found] for name in _COLUMNS}
        return SourceReport(run=self._run, source=wanted, **columns)


class WorkerClock:
    """Seconds of a pool of workers by what they did. Any thread may call it.

    A worker that has nothing to do is blocked where what is made already fills its budget, else idle. Which of the two
    is looked at when it is read, that is with every heartbeat.

    Args:
        num_workers: Threads of the pool.
        busy_s: Seconds that they have worked, all together.
        is_full: Whether what is made fills its budget.
    """

    def __init__(self, num_workers: int, busy_s: Callable[[], float], is_full: Callable[[], bool]) -> None:
        self._num_workers, self._busy_s, self._is_full = num_workers, busy_s, is_full
        self._lock = threading.Lock()
        self._read_s, self._busy, self._spare = time.monotonic(), 0.0, {BLOCKED: 0.0, IDLE: 0.0}

    def read(self) -> dict[str, float]:
        """Seconds so far, all workers together."""
        with self._lock:
            now_s, busy_s = time.monotonic(), self._busy_s()
            spare_s = self._num_workers * (now_s - self._read_s) - (busy_s - self._busy)
            self._spare[BLOCKED if self._is_full() else IDLE] += max(0.0, spare_s)
            self._read_s, self._busy = now_s, busy_s
            return {BUSY: busy_s, **self._spare}
