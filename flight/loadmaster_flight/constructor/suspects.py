"""Telling the planner of loaders that are gone, so that nobody has to wait for their leases to lapse."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from loadmaster_flight.wire.control import SuspectReply, SuspectReport
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.probing import refusing

LOG = logging.getLogger(__name__)
PAUSE_S = 1.0
"""One address is reported this often at most."""


class SuspectReporter:
    """Reports loaders whose port refuses. Any thread may call it; it waits for the planner, not for long.

    Args:
        planner: Who is told; each call has a deadline of its own.
        by: Own address.
        on_gone: Called when the planner has given a loader up: there are new routes.
    """

    def __init__(self, planner: PlannerClient, *, by: Callable[[], str], on_gone: Callable[[], None]) -> None:
        self._planner, self._by, self._on_gone = planner, by, on_gone
        self._lock = threading.Lock()
        self._told_s: dict[str, float] = {}

    def report(self, address: str, reason: str) -> None:
        """A call to this loader failed: if nobody listens there any more, say so. Never raises."""
        now_s = time.monotonic()
        with self._lock:
            if now_s - self._told_s.get(address, -PAUSE_S) < PAUSE_S:
                return
            self._told_s = {a: at_s for a, at_s in self._told_s.items() if now_s - at_s < PAUSE_S} | {address: now_s}
        if not refusing([address]):
            return
        try:
            report = SuspectReport(address=address, by=self._by(), reason=reason[:200])
            if self._planner.post("/actors/suspects", report, SuspectReply).is_gone:
                self._on_gone()
        except LoadmasterError as error:  # the planner will find out by itself
            LOG.info("could not report loader %s: %s", address, error)
