"""Refusals in the audit log: each of a kind once a minute, and no more than so many a minute in all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from ..store import AccessRepository
from .caller import Caller

WINDOW_S = 60.0
MAX_IN_WINDOW = 60
Kind = tuple[str, str, str, str]


class RefusalLog:
    """Writes refusals down. Any thread may call it.

    Args:
        access: Where they go.
        clock: Seconds that only go forward.
    """

    def __init__(self, access: AccessRepository, clock: Callable[[], float] = time.monotonic) -> None:
        self._access, self._clock = access, clock
        self._lock = threading.Lock()
        self._begun_s = clock()
        self._seen: set[Kind] = set()
        self._left_out = 0
        self._by_code: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """How many there were since the planner started, written down or not, by code."""
        with self._lock:
            return dict(self._by_code)

    def note(self, caller: Caller, *, author: str, code: str, run: str, message: str) -> bool:
        """Write a refusal down unless one like it was, a short while ago; whether it was written."""
        with self._lock:
            self._by_code[code] += 1
            left_out = self._count((author, caller.address, caller.route, code))
        if left_out is None:
            return False
        self._access.note_refusal(
            author=author, run=run, message=message, target=caller.target, address=caller.address, code=code,
            left_out=left_out,
        )  # fmt: skip
        return True

    def _count(self, kind: Kind) -> int | None:
        """How many were left out since the last one that was written; None: this one is left out too."""
        now_s = self._clock()
        if now_s - self._begun_s >= WINDOW_S:
            self._begun_s, self._seen = now_s, set()
        if kind in self._seen or len(self._seen) >= MAX_IN_WINDOW:
            self._left_out += 1
            return None
        self._seen.add(kind)
        left_out, self._left_out = self._left_out, 0
        return left_out
