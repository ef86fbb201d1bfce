"""How a source is read: counts, times of the last reads, and the newest error."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

KEPT_READS = 256
MAX_ERROR = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """How a source was read so far: see `SourceReport` of the wire. `last_error_s` is -1 where nothing failed."""

    reads: int
    read_bytes: int
    p50_ms: float
    p99_ms: float
    errors: int
    retries: int
    last_error: str
    last_error_s: float
    is_failing: bool


class ReadMeter:
    """Notes reads of one source. Any thread may use it.

    Attributes:
        version: Counts what was noted: who has seen it knows whether there is news.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.version = 0
        self._reads, self._read_bytes, self._errors, self._retries = 0, 0, 0, 0
        self._took_s: deque[float] = deque(maxlen=KEPT_READS)
        self._last_error, self._error_s = "", -1.0
        self._is_failing = False

    def read(self, took_s: float, size_bytes: int) -> None:
        """A block came, after so long, waits between tries included."""
        with self._lock:
            self.version += 1
            self._reads, self._read_bytes, self._is_failing = self._reads + 1, self._read_bytes + size_bytes, False
            self._took_s.append(took_s)

    def retry(self, error: BaseException) -> None:
        """A try failed, and is made again."""
        with self._lock:
            self._retries += 1
            self._fail(error)

    def fail(self, error: BaseException) -> None:
        """A read failed for good."""
        with self._lock:
            self._errors += 1
            self._fail(error)

    def look(self) -> Readings:
        """How things are now."""
        with self._lock:
            took_N = np.fromiter(self._took_s, np.float64)
            p50, p99 = np.percentile(took_N, [50, 99]).tolist() if len(took_N) else (0.0, 0.0)
            return Readings(
                reads=self._reads,
                read_bytes=self._read_bytes,
                p50_ms=round(1e3 * p50, 3),
                p99_ms=round(1e3 * p99, 3),
                errors=self._errors,
                retries=self._retries,
                last_error=self._last_error,
                last_error_s=round(time.monotonic() - self._error_s, 1) if self._last_error else -1.0,
                is_failing=self._is_failing,
            )

    def _fail(self, error: BaseException) -> None:
        self.version += 1
        notes = "; ".join(getattr(error, "__notes__", ()))
        text = f"{type(error).__name__}: {error}" if not hasattr(error, "message") else str(error)
        self._last_error = (f"{text} ({notes})" if notes else text)[:MAX_ERROR]
        self._error_s, self._is_failing = time.monotonic(), True
