"""What the planner's threads count: sums and newest values, for people and for monitoring."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from loadmaster_flight.telemetry import Histogram

from ..store import StreamKey


@dataclass(slots=True, kw_only=True)
class StreamCounts:
    """What a plan loop tells of its stream.

    Attributes:
        planning: How long steps took to plan and to be written down, waiting for metadata not counted.
        queue_tokens: Drawn, and not placed yet; None until a loop has said so.
    """

    planning: Histogram = field(default_factory=Histogram)
    queue_tokens: int | None = None


class Counters:
    """Named numbers. Any thread may call anything.

    Attributes:
        encoding: How long it took to make bytes of the planner's state, for each checkpoint.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}
        self._streams: dict[StreamKey, StreamCounts] = {}
        self.encoding = Histogram()

    def add(self, name: str, value: float = 1.0) -> None:
        """Raise a sum."""
        with self._lock:
            self._values[name] = self._values.get(name, 0.0) + value

    def set(self, name: str, value: float) -> None:
        """Keep the newest value."""
        with self._lock:
            self._values[name] = value

    def of(self, key: StreamKey) -> StreamCounts:
        """Those of one stream, through all its generations."""
        with self._lock:
            return self._streams.setdefault(key, StreamCounts())

    def read(self) -> dict[str, float]:
        """All that have a name, now."""
        with self._lock:
            return dict(self._values)
