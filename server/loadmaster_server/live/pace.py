"""How fast streams go, from when their common acknowledgement rose."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from ..store import GenerationKey, StreamKey

WINDOW_S = 60.0
MAX_WINDOW_S = 600.0
MIN_GAP_S = 0.25
"""Two marks that are closer are kept as one."""

LATE_S = 3.0
"""Acknowledgements come with heartbeats: a shorter silence than this says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps [first, last) were acknowledged in `window_s` seconds."""

    first: int
    last: int
    window_s: float

    @property
    def num_steps(self) -> int:
        return self.last - self.first

    @property
    def step_s(self) -> float:
        """From one step to the next."""
        return self.window_s / self.num_steps


class Pace:
    """Remembers acknowledgements of the newest generation of each stream. Any thread may use it.

    In memory alone: what was before the planner started is not known. At most `MAX_WINDOW_S` back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: dict[StreamKey, tuple[int, deque[tuple[float, int]]]] = {}

    def note(self, key: GenerationKey, step: int, *, now_s: float | None = None) -> None:
        """All ranks have acknowledged the steps before `step`."""
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            number, marks = self._marks.get(key.stream_key, (-1, deque[tuple[float, int]]()))
            if key.generation < number:
                return
            if key.generation > number:
                marks = deque[tuple[float, int]]()
                self._marks[key.stream_key] = key.generation, marks
            if marks and step <= marks[-1][1]:
                return
            if len(marks) > 1 and now_s - marks[-2][0] < MIN_GAP_S:
                marks.pop()
            marks.append((now_s, step))
            while len(marks) > 2 and now_s - marks[1][0] > MAX_WINDOW_S:
                marks.popleft()

    def stretch(self, key: GenerationKey, window_s: float = WINDOW_S, *, now_s: float | None = None) -> Stretch | None:
        """The steps of the last `window_s` seconds, up to now; None while fewer than two marks are in it.

        It begins at the first mark in the window. A stream that stands still has fewer and fewer steps in it, and none
        in the end.
        """
        now_s = time.monotonic() if now_s is None else now_s
        with self._lock:
            number, marks = self._marks.get(key.stream_key, (-1, deque[tuple[float, int]]()))
            found = [mark for mark in marks if now_s - mark[0] <= window_s] if number == key.generation else []
        if len(found) < 2:
            return None
        (begun_s, first), (last_s, last) = found[0], found[-1]
        is_late = now_s - last_s > max(LATE_S, 2 * (last_s - begun_s) / (last - first))
        return Stretch(first=first, last=last, window_s=(now_s if is_late else last_s) - begun_s)

    def keep(self, streams: Collection[StreamKey]) -> None:
        """Forget all other streams."""
        with self._lock:
            for key in self._marks.keys() - set(streams):
                del self._marks[key]
