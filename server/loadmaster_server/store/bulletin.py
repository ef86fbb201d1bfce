"""Wakes the threads of this process that wait for a change in the store."""

from __future__ import annotations

import threading
import time

ACTORS = "actors"
"""Topic: processes came or went, runs were created, generations opened: who should do what may have changed."""


class Bulletin:
    """Counts changes by topic; a waiter gives the count that it has seen. Any thread may call anything.

    Only a hint: what is true stands in SQL, and every wait has a timeout.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._counts: dict[str, int] = {}
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the planner is stopping: waits return at once."""
        return self._is_closed

    def seen(self, topic: str) -> int:
        """The topic's count now; read it before reading the store."""
        with self._condition:
            return self._counts.get(topic, 0)

    def post(self, topic: str) -> None:
        """Something about the topic changed."""
        with self._condition:
            self._counts[topic] = self._counts.get(topic, 0) + 1
            self._condition.notify_all()

    def wait(self, topic: str, seen: int, timeout_s: float) -> bool:
        """Wait until the topic's count is not `seen` any more; False when time ran out or the planner stops."""
        until = time.monotonic() + timeout_s
        with self._condition:
            while self._counts.get(topic, 0) == seen and not self._is_closed:
                left_s = until - time.monotonic()
                if left_s <= 0 or not self._condition.wait(left_s):
                    break
            return self._counts.get(topic, 0) != seen and not self._is_closed

    def close(self) -> None:
        """End all waits, now and from now on. Idempotent."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
