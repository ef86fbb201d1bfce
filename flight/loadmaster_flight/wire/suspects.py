"""Telling the planner of processes that are gone, so that nobody has to wait for their leases to lapse."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from .control import SuspectReply, SuspectReport
from .errors import LoadmasterError
from .http import PlannerClient
from .probing import refusing

LOG = logging.getLogger(__name__)
PAUSE_S = 1.0
"""One address is reported this often at most."""
VERDICT_S = 3.0
"""Who reports what another thread reports already waits for the planner's answer to that, no longer than this."""


class SuspectReporter:
    """Reports loaders and constructors whose port refuses. Any thread may call it; it waits for the planner's answer.

    Args:
        planner: Who is told; its calls should have a short deadline.
        by: Who says so.
        on_gone: Called when the planner has given the process up: others have its leases.
    """

    def __init__(
        self, planner: PlannerClient, *, by: Callable[[], str], on_gone: Callable[[], None] = lambda: None
    ) -> None:
        self._planner, self._by, self._on_gone = planner, by, on_gone
        self._lock = threading.Lock()
        self._told_s: dict[str, float] = {}
        self._under_way: dict[str, threading.Event] = {}

    def report(self, address: str, reason: str, hangs: bool = False) -> None:
        """A call to this process failed, or has no answer: say so if nobody listens there any more, or if it hangs.

        Never raises.
        """
        with self._lock:
            under_way = self._under_way.get(address)
            if under_way is None:
                now_s = time.monotonic()
                if now_s - self._told_s.get(address, -PAUSE_S) < PAUSE_S:
                    return
                self._told_s = {a: at_s for a, at_s in self._told_s.items() if now_s - at_s < PAUSE_S}
                self._told_s[address], answered = now_s, threading.Event()
                self._under_way[address] = answered
        if under_way is not None:
            under_way.wait(VERDICT_S)
            return
        try:
            self._tell(address, reason, hangs)
        finally:
            with self._lock:
                del self._under_way[address]
            answered.set()

    def _tell(self, address: str, reason: str, hangs: bool) -> None:
        if not hangs and not refusing([address]):
            return
        try:
            report = SuspectReport(address=address, by=self._by(), reason=reason[:200], hangs=hangs)
            if self._planner.post("/actors/suspects", report, SuspectReply).is_gone:
                self._on_gone()
        except LoadmasterError as error:  # the planner will find out by itself
            LOG.info("could not report %s: %s", address, error)
