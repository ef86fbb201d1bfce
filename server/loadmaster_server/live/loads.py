"""How busy loaders, constructors and plan loops are, from the seconds that they count."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loadmaster_flight.wire.stages import BLOCKED, BUSY, IDLE

SAMPLE_S = 2.0
WINDOW_S = 60.0
KINDS = (BUSY, BLOCKED, IDLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How a stage's time was spent in the last `window_s`: parts of 1."""

    busy: float
    blocked: float
    idle: float
    window_s: float


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    seconds: tuple[float, ...]


class Loads:
    """Samples of counted seconds by stage, one every `SAMPLE_S`, for `WINDOW_S`. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[str, deque[_Sample]] = {}

    def note(self, stage: str, stats: Mapping[str, float], *, now_s: float | None = None) -> None:
        """Take in the sums that a stage has counted so far; a stage that does not count is left out."""
        now_s = time.monotonic() if now_s is None else now_s
        if not all(kind in stats for kind in KINDS):
            return
        sample = _Sample(now_s, tuple(stats[kind] for kind in KINDS))
        with self._lock:
            samples = self._samples.setdefault(stage, deque())
            if samples and any(new < old for new, old in zip(sample.seconds, samples[-1].seconds, strict=True)):
                samples.clear()  # it counts from zero again
            if len(samples) > 1 and now_s - samples[-2].at_s < SAMPLE_S:
                samples.pop()
            samples.append(sample)
            while len(samples) > 2 and now_s - samples[1].at_s > WINDOW_S:
                samples.popleft()

    def keep(self, stages: Iterable[str]) -> None:
        """Forget all other stages."""
        wanted = set(stages)
        with self._lock:
            for stage in self._samples.keys() - wanted:
                del self._samples[stage]

    def load(self, stage: str) -> Load | None:
        """How its time was spent; None while it has not said, or has said it once."""
        with self._lock:
            samples = self._samples.get(stage)
            if samples is None or len(samples) < 2:
                return None
            old, new = samples[0], samples[-1]
        spent = [b - a for a, b in zip(old.seconds, new.seconds, strict=True)]
        total = sum(spent)
        if total <= 0:
            return None
        busy, blocked, idle = (round(part / total, 4) for part in spent)
        return Load(busy=busy, blocked=blocked, idle=idle, window_s=new.at_s - old.at_s)
