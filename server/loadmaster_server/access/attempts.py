"""Failed attempts to sign in: so many a minute from one address, and in all."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable

from loadmaster_flight.wire.errors import BusyError

WINDOW_S = 60.0
MAX_OF_ADDRESS = 10
MAX_IN_ALL = 200


class Attempts:
    """Counts failures. Any thread may call it; what it keeps is bounded by `MAX_IN_ALL`.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._begun_s = clock()
        self._failed: Counter[str] = Counter()

    def check(self, address: str) -> None:
        """Refuse another attempt from where too many have failed.

        Raises:
            BusyError: Too many; says for how long.
        """
        with self._lock:
            left_s = self._begun_s + WINDOW_S - self._clock()
            if left_s <= 0:
                self._begun_s, self._failed = self._clock(), Counter()
            elif self._failed[address] >= MAX_OF_ADDRESS or self._failed.total() >= MAX_IN_ALL:
                wait_s = math.ceil(left_s)
                raise BusyError(f"too many attempts to sign in have failed: wait {wait_s} s", retry_after_s=wait_s)

    def note(self, address: str) -> None:
        """One has failed."""
        with self._lock:
            self._failed[address] += 1
