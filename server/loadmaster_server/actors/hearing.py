"""Time in which the planner could have heard its processes: silence is counted in it, and leases lapse by it."""

from __future__ import annotations

import time
from collections.abc import Callable


class Hearing:
    """A clock that stands still while nobody can be heard, and for a moment after that.

    The planner cannot hear while it is stopped (its thread does not tick), while it may not act (its store is away, so
    it answers 503), and where nobody at all reports: then it is the planner that is cut off, or there is nobody whom a
    lease could go to. When it hears again, all have `grace_s` to come back: they ask ever less often meanwhile.

    One thread ticks; any may call the rest. Times are monotonic seconds of this process.

    Args:
        patience_s: Without a tick, or without a word of anybody, for longer than this, the clock stands.
        grace_s: How long it still stands when the planner hears again.
        is_open: Whether the planner answers.
    """

    def __init__(self, *, patience_s: float, grace_s: float, is_open: Callable[[], bool] = lambda: True) -> None:
        self._patience_s, self._grace_s, self._is_open = patience_s, grace_s, is_open
        self._counted_s, self._is_deaf = 0.0, True
        self._ticked_s = self._heard_s = time.monotonic()
        self._again_s, self._back_s = 0.0, self._ticked_s + grace_s

    @property
    def now_s(self) -> float:
        """Seconds in which processes could have been heard, so far."""
        return self._counted_s

    @property
    def is_back(self) -> bool:
        """Whether the planner itself has been here for long enough to wonder about others."""
        return self._ticked_s >= self._back_s

    def hear(self, *, now_s: float | None = None) -> None:
        """Somebody reported."""
        self._heard_s = time.monotonic() if now_s is None else now_s

    def tick(self, *, now_s: float | None = None) -> None:
        """Count the time since the last tick, as far as it counts."""
        now_s = time.monotonic() if now_s is None else now_s
        passed_s, self._ticked_s = now_s - self._ticked_s, now_s
        if passed_s > self._patience_s or not self._is_open():
            self._is_deaf, self._back_s = True, now_s + self._grace_s
            return
        if now_s - self._heard_s > self._patience_s:
            self._is_deaf = True
            return
        if self._is_deaf:
            self._is_deaf, self._again_s = False, now_s + self._grace_s
        if now_s >= self._again_s:
            self._counted_s += passed_s
