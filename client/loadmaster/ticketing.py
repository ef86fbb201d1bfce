"""The ticket of a rank's next window, asked for long before the last one ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from loadmaster_flight.wire.control import TicketReply
from loadmaster_flight.wire.errors import LoadmasterError

RETRY_S = 1.0


class TicketAhead:
    """Asks beside the reader, so that a planner that is away where a window ends holds nothing up.

    One thread calls it; it has one of its own for each question.

    Args:
        ask: Gets a ticket from a step on.
    """

    def __init__(self, ask: Callable[[int], TicketReply]) -> None:
        self._ask = ask
        self._found: dict[int, TicketReply] = {}
        self._thread: threading.Thread | None = None
        self._again_s = 0.0

    def want(self, first_step: int) -> None:
        """Ask for the window that begins there, unless that is done or being done. Returns at once."""
        is_asking = self._thread is not None and self._thread.is_alive()
        if first_step in self._found or is_asking or time.monotonic() < self._again_s:
            return
        self._again_s = time.monotonic() + RETRY_S
        self._thread = threading.Thread(target=self._fetch, args=(first_step, self._found), daemon=True)
        self._thread.name = "loadmaster-ticket"
        self._thread.start()

    def take(self, first_step: int) -> TicketReply | None:
        """The ticket of the window that begins there, if it has come."""
        found = self._found.get(first_step)
        self.drop()
        return found

    def drop(self) -> None:
        """Forget it: whoever serves the rank may have changed."""
        self._found, self._again_s = {}, 0.0

    def join(self, timeout_s: float) -> None:
        """Wait for the question under way."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _fetch(self, first_step: int, found: dict[int, TicketReply]) -> None:
        try:
            found[first_step] = self._ask(first_step)
        except LoadmasterError:  # the reader meets the same failure when it needs it, and says so
            return
