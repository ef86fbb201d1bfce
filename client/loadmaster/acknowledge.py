"""Telling a constructor what is consumed, without keeping the training loop waiting."""

from __future__ import annotations

import contextlib
import threading

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.flight import FlightPeer

RETRY_S = 0.5
LAST_TIMEOUT_S = 1.0
CLOSE_S = 3.0


class Acknowledger:
    """Sends the newest cumulative acknowledgement of a rank, from a thread of its own.

    One that fails is sent again, to wherever the rank reads by then; older ones are left out. Any thread may call.
    """

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._step, self._sent = -1, -1
        self._address, self._ticket_hex = "", ""
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def send_to(self, address: str, ticket_hex: str) -> None:
        """Where acknowledgements go from now on; the last one goes there too."""
        with self._changed:
            self._address, self._ticket_hex, self._sent = address, ticket_hex, -1
            self._changed.notify_all()

    def acknowledge(self, step: int) -> None:
        """The steps before `step` are consumed. Returns at once."""
        with self._changed:
            self._step = max(self._step, step)
            self._changed.notify_all()

    def close(self) -> None:
        """Try once more to send what is left, then end the thread. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_S)

    def _is_due(self) -> bool:
        return bool(self._address) and self._step > self._sent

    def _run(self) -> None:
        peer: FlightPeer | None = None
        with contextlib.ExitStack() as stack:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed or self._is_due())
                    if not self._is_due():
                        return
                    step, address, ticket_hex, is_last = self._step, self._address, self._ticket_hex, self._is_closed
                if peer is None or peer.address != address:
                    peer = stack.enter_context(FlightPeer(address))
                self._send(peer, step, ticket_hex)
                if is_last:
                    return

    def _send(self, peer: FlightPeer, step: int, ticket_hex: str) -> None:
        try:
            peer.action(Action.ACK, {"ticket_hex": ticket_hex, "step": step}, timeout_s=LAST_TIMEOUT_S)
        except LoadmasterError:  # the reader meets the same failure, and says so
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._ticket_hex != ticket_hex, RETRY_S)
            return
        with self._changed:
            if self._ticket_hex == ticket_hex:
                self._sent = step
