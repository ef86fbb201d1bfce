"""How many calls run at once: the Flight server itself has no bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..wire.errors import BusyError

WAIT_S = 2.0


class Admission:
    """At most `limit` at once; who finds no place within `WAIT_S` is told to come again.

    Args:
        limit: Calls at once.
        what: What the calls are, for the error.
    """

    def __init__(self, limit: int, what: str, *, wait_s: float = WAIT_S) -> None:
        self._limit, self._what, self._wait_s = limit, what, wait_s
        self._places = threading.BoundedSemaphore(limit)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place.

        Raises:
            BusyError: None came free in time.
        """
        if not self._places.acquire(timeout=self._wait_s):
            raise BusyError(f"{self._limit} {self._what} run already, and none ended within {self._wait_s:g} s")
        try:
            yield
        finally:
            self._places.release()
