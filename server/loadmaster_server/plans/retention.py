"""Keeps the plan log small: old bodies go to segment files, checkpoints are thinned, the oldest steps are forgotten."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from loadmaster_flight.wire.errors import BadRequestError

from ..outage import OutageLog
from ..store import GenerationRecord, Store
from .counters import Counters

LOOK_S = 5.0
CLOSE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """What of the plan log stays where. Steps are counted back from what all ranks have acknowledged.

    Attributes:
        keep_steps: Bodies and checkpoints of the newest steps stay in SQL as they are.
        segment_steps: Bodies that move to one file.
        thin_to: Of the older checkpoints every n-th stays: going on from such a step plans that much more again.
        forget_steps: Older bodies are deleted, and no stream can go on from their steps any more; 0: never.

    Raises:
        BadRequestError: A value is out of its range; names the field.
    """

    keep_steps: int = 1024
    segment_steps: int = 256
    thin_to: int = 32
    forget_steps: int = 0

    def __post_init__(self) -> None:
        for name, least in (("keep_steps", 1), ("segment_steps", 1), ("thin_to", 1), ("forget_steps", 0)):
            if getattr(self, name) < least:
                raise BadRequestError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if 0 < self.forget_steps < self.keep_steps + self.segment_steps:
            least = self.keep_steps + self.segment_steps
            raise BadRequestError(
                f"forget_steps must be 0, or at least keep_steps + segment_steps = {least}, got {self.forget_steps}"
            )


class Retention:
    """A thread that applies the rules to every stream that is being read. `close` it.

    Args:
        store: The log.
        rules: What stays where.
        checkpoint_steps: Steps from one base checkpoint to the next.
        counters: Told what was moved and dropped, and how long that took.
    """

    def __init__(self, store: Store, rules: RetentionRules, *, checkpoint_steps: int, counters: Counters) -> None:
        self._store, self._rules, self._counters = store, rules, counters
        self._thin_every = rules.thin_to * checkpoint_steps
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="retention", daemon=True)

    def start(self) -> None:
        """Begin to look, every few seconds; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop; what is being moved is finished or left as it was. At most about a second. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def apply(self) -> None:
        """Bring every stream up to the rules, once.

        Raises:
            UnavailableError: The storage or the store is away; what was not done is done next time.
        """
        for generation in self._store.generations.current():
            self._apply(generation)

    def _watch(self) -> None:
        outage = OutageLog("tidying the plan log")
        while not self._stop.wait(LOOK_S):
            try:
                self.apply()
                outage.went_well()
            except Exception as error:
                self._counters.add("retention_failures")
                outage.met(error)

    def _apply(self, generation: GenerationRecord) -> None:
        key, recent = generation.key.stream_key, generation.acknowledged - self._rules.keep_steps
        while not self._stop.is_set() and self._move_next(generation, recent):
            pass
        if recent > 0:
            dropped = self._store.archive.thin(key, below=recent, every=self._thin_every)
            self._counters.add("checkpoints_dropped", dropped)
        oldest = generation.acknowledged - self._rules.forget_steps
        if self._rules.forget_steps and oldest > 0:
            self._counters.add("segments_dropped", self._store.archive.forget(key, below=oldest))

    def _move_next(self, generation: GenerationRecord, below: int) -> bool:
        archive, start_s = self._store.archive, time.monotonic()
        part = archive.next_range(generation.key.stream_key, below=below, num_steps=self._rules.segment_steps)
        if part is None:
            return False
        size_bytes = archive.move(part)
        self._counters.add("plans_moved", part.last - part.first)
        self._counters.add("segment_bytes_written", size_bytes)
        self._counters.add("segment_seconds", time.monotonic() - start_s)
        return True
