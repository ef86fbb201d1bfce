"""What the planner's threads count: sums and newest values, for people and for monitoring."""

from __future__ import annotations

import threading


class Counters:
    """Named numbers. Any thread may call anything."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}

    def add(self, name: str, value: float = 1.0) -> None:
        """Raise a sum."""
        with self._lock:
            self._values[name] = self._values.get(name, 0.0) + value

    def set(self, name: str, value: float) -> None:
        """Keep the newest value."""
        with self._lock:
            self._values[name] = value

    def read(self) -> dict[str, float]:
        """All of them now."""
        with self._lock:
            return dict(self._values)
