"""Media of samples that several constructors ask for: decoded once, and found good or bad once for all of them.

Where a plan says who encodes images, the document of a sample and its units go different ways. Whether the sample is
masked must not depend on which of them is asked for, so all of it is decoded whatever is wanted, and kept meanwhile.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from ..transforms.sample import UInt8Array


class DecodedKey(NamedTuple):
    """A sample in an epoch's order."""

    source: int
    epoch: int
    shard: int
    block: int
    pos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedSample:
    """Pixels of all units and all audio of a sample, never written to; or why there are none.

    Attributes:
        reason: Why it cannot be decoded; both arrays are zeros then.
    """

    reason: str | None
    pixels: UInt8Array
    audio: UInt8Array

    @property
    def size_bytes(self) -> int:
        return self.pixels.nbytes + self.audio.nbytes


class DecodedSamples:
    """Samples within `budget_bytes`, those used last; what was dropped is made again. For any number of threads."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[DecodedKey, DecodedSample] = OrderedDict()
        self._making: dict[DecodedKey, Future[DecodedSample]] = {}
        self.size_bytes = 0
        self.num_made = 0

    def get(self, key: DecodedKey, make: Callable[[], DecodedSample]) -> DecodedSample:
        """The sample, made by `make` where it is not here; what `make` raises goes to everybody who waits for it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            waiting = self._making.get(key)
            if waiting is None:
                mine = self._making[key] = Future()
        # Whoever makes it is running already, so waiting here cannot be a deadlock.
        return waiting.result() if waiting is not None else self._made(key, make, mine)

    def drop(self, keys: Iterable[DecodedKey]) -> None:
        """Let go of samples that every rank has."""
        with self._lock:
            for key in keys:
                found = self._kept.pop(key, None)
                self.size_bytes -= 0 if found is None else found.size_bytes

    def _made(self, key: DecodedKey, make: Callable[[], DecodedSample], mine: Future[DecodedSample]) -> DecodedSample:
        try:
            sample = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._keep(key, sample)
        mine.set_result(sample)
        return sample

    def _keep(self, key: DecodedKey, sample: DecodedSample) -> None:
        self.num_made += 1
        self._kept[key] = sample
        self.size_bytes += sample.size_bytes
        while self.size_bytes > self._budget_bytes:
            self.size_bytes -= self._kept.popitem(last=False)[1].size_bytes
