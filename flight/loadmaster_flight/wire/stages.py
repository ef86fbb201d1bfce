"""What a stage of the data plane did with its time, counted where the time is spent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
BUSY, BLOCKED, IDLE = "busy_s", "blocked_s", "idle_s"
"""Names in the stats of a heartbeat. Busy: it works. Blocked: whoever comes after it has enough for now. Idle: whoever
comes before it has nothing for it."""


class StageClock:
    """Seconds of one thread by what it does; it is always doing one thing. That thread calls `doing`, any may `read`.

    Args:
        doing: What it does first.
    """

    def __init__(self, doing: str = IDLE) -> None:
        self._lock = threading.Lock()
        self._seconds = dict.fromkeys((BUSY, BLOCKED, IDLE), 0.0)
        self._doing, self._since_s = doing, time.monotonic()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Do this until the end of the block, then what was done before."""
        before = self._turn(what)
        try:
            yield
        finally:
            self._turn(before)

    def each(self, items: Iterator[T], what: str) -> Iterator[T]:
        """The items; waiting for each counts as this."""
        while True:
            with self.doing(what):
                item = next(items, None)
            if item is None:
                return
            yield item

    def read(self) -> dict[str, float]:
        """Seconds so far, what is under way included."""
        with self._lock:
            self._add(time.monotonic())
            return dict(self._seconds)

    def _turn(self, what: str) -> str:
        with self._lock:
            self._add(time.monotonic())
            before, self._doing = self._doing, what
            return before

    def _add(self, now_s: float) -> None:
        self._seconds[self._doing] += now_s - self._since_s
        self._since_s = now_s
