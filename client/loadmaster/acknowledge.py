"""Telling a constructor what is consumed, without keeping the training loop waiting."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import LoadmasterError, UnavailableError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.tls import Tls
from loadmaster_flight.wire.waiting import BEAT_S

RETRY_S = 0.5
LAST_RETRY_S = 0.1
LAST_TIMEOUT_S = 1.0
GONE_S = 2.0
CLOSE_S = 10.0
MAX_HOST = 64
MAX_WAITS = 32
"""Waits that are told with one acknowledgement; where more have come since the last one, the oldest are left out."""


class Acknowledger:
    """Sends the newest cumulative acknowledgement of a rank, from a thread of its own.

    One that fails is sent again, to wherever the rank reads by then; older ones are left out. Where there is nothing
    new, the last one is repeated every `BEAT_S`: so the others can tell a rank that trains from one that is dead. Any
    thread may call.

    Args:
        name: Of the thread.
        on_failure: Called from that thread when one could not be sent; must not block.
        find: Asks the planner where the rank is served now, address and ticket; for the last acknowledgement, which no
            reader sends anywhere else.
        tls: How to call constructors; None: what the environment says.
    """

    def __init__(
        self,
        name: str,
        on_failure: Callable[[], None] = lambda: None,
        *,
        find: Callable[[], tuple[str, str]],
        tls: Tls | None = None,
    ) -> None:
        self._on_failure, self._find, self._tls = on_failure, find, tls
        self._changed = threading.Condition()
        self._step, self._sent = -1, -1
        self._waits: deque[tuple[int, float]] = deque(maxlen=MAX_WAITS)
        self._host = socket.gethostname()[:MAX_HOST]
        self._address, self._ticket_hex = "", ""
        self._is_closed, self._is_leaving, self._closed_s = False, False, 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def send_to(self, address: str, ticket_hex: str) -> None:
        """Where acknowledgements go from now on; the last one goes there too."""
        with self._changed:
            self._address, self._ticket_hex, self._sent = address, ticket_hex, -1
            self._changed.notify_all()

    def acknowledge(self, step: int, *, wait_s: float = 0.0) -> None:
        """The steps before `step` are consumed; the rank waited `wait_s` for the last of them. Returns at once."""
        with self._changed:
            if step > self._step:
                self._waits.append((step - 1, wait_s))
            self._step = max(self._step, step)
            self._changed.notify_all()

    def close(self, *, in_peace: bool = True) -> None:
        """Send what is left, and end. Idempotent.

        Where it is refused, as the rank has moved or its constructor is yet to be ready, that takes `CLOSE_S` at most;
        where nobody is reached, `GONE_S`; where the planner does not say where to send it, no time at all.

        Args:
            in_peace: Say also that the rank has closed its stream, and is not dead.
        """
        with self._changed:
            if not self._is_closed:
                self._is_leaving, self._closed_s = in_peace, time.monotonic()
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _is_due(self) -> bool:
        return bool(self._address) and (self._step > self._sent or self._is_leaving)

    def _run(self) -> None:
        peer: FlightPeer | None = None
        with contextlib.ExitStack() as stack:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed or self._is_due(), BEAT_S)
                    if self._is_closed and not self._is_due():
                        return
                    step, address, ticket_hex, is_last = self._step, self._address, self._ticket_hex, self._is_closed
                if not address:
                    continue
                if peer is None or peer.address != address:
                    peer = stack.enter_context(FlightPeer(address, tls=self._tls))
                error = self._send(peer, step, ticket_hex)
                if is_last and (error is None or not self._find_again(error)):
                    return

    def _find_again(self, error: LoadmasterError) -> bool:
        """Ask where the last acknowledgement should go, after a moment; False where it is not sent again."""
        patience_s = GONE_S if isinstance(error, UnavailableError) else CLOSE_S - LAST_TIMEOUT_S
        if not error.retry or time.monotonic() - self._closed_s > patience_s:
            return False
        time.sleep(LAST_RETRY_S)
        try:
            address, ticket_hex = self._find()
        except LoadmasterError:
            return False
        self.send_to(address, ticket_hex)
        return True

    def _send(self, peer: FlightPeer, step: int, ticket_hex: str) -> LoadmasterError | None:
        with self._changed:
            waits = [wait for wait in self._waits if wait[0] < step]
        try:
            body: dict[str, Any] = {"ticket_hex": ticket_hex, "step": step, "host": self._host}
            body["waits"] = [[of_step, round(wait_s, 6)] for of_step, wait_s in waits]
            if self._is_leaving:
                body["is_leaving"] = True
            peer.action(Action.ACK, body, timeout_s=LAST_TIMEOUT_S)
        except LoadmasterError as error:  # the reader meets the same failure, and says so
            self._on_failure()
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._ticket_hex != ticket_hex, RETRY_S)
            return error
        with self._changed:
            while self._waits and self._waits[0] in waits:
                self._waits.popleft()
            if self._ticket_hex == ticket_hex:
                self._sent = step
        return None
