"""Reading a stream whose server may be stopped or cut off: the only timeout of a single read that Flight has."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as fl

from .actions import Action
from .errors import DeadlineError, LoadmasterError, from_flight
from .flight import FlightPeer
from .tls import Tls

BEAT_S = 0.25
"""A server that has nothing to send yet says so this often."""
QUIET_S = 0.5
"""After so long without a message its server is asked whether it is there: two beats."""
READ_TIMEOUT_S = 30.0
"""One message takes no longer, even of a server that is there."""
LOOK_S = 0.25


def answers(address: str, *, timeout_s: float, tls: Tls | None = None) -> bool:
    """Whether a Flight server of ours says that it lives, on a new connection; one that refuses us lives too."""
    try:
        with FlightPeer(address, tls=tls) as peer:
            return lives(peer, timeout_s=timeout_s)
    except LoadmasterError as error:  # of a certificate that cannot be read, before anything is called
        return not error.retry


def lives(peer: FlightPeer, *, timeout_s: float) -> bool:
    """The same on a connection that is there, beside its other calls."""
    try:
        peer.action(Action.HEALTH, timeout_s=timeout_s)
    except LoadmasterError as error:
        return not error.retry
    return True


class ReadWatchdog:
    """Reads the messages of one stream and cancels it when its server is gone. `close` it, or use `with`.

    A read may take long because the message is large or the network slow: that is no reason to end it. So where nothing
    comes, the server is asked. One thread reads; the watchdog has one of its own; any may call `cancel` and `close`.

    Args:
        reader: The stream.
        what: Its server, for people.
        is_there: Called from the watchdog's thread after `quiet_s` without a message, and every `quiet_s` from then on:
            whether the server lives. May take a second or so.
        timeout_s: A single read takes no longer in any case.
    """

    def __init__(
        self,
        reader: fl.FlightStreamReader,
        *,
        what: str,
        is_there: Callable[[], bool],
        quiet_s: float = QUIET_S,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> None:
        self._reader, self._what, self._is_there = reader, what, is_there
        self._quiet_s, self._timeout_s = quiet_s, timeout_s
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._reading: tuple[int, float] | None = None  # number of the read under way, and since when
        self._num_reads, self._verdict = 0, ""
        self._thread = threading.Thread(target=self._watch, name="read-watchdog", daemon=True)
        self._thread.start()

    def read(self) -> tuple[pa.RecordBatch | None, bytes]:
        """The next message: data (None for metadata alone) and app_metadata.

        Raises:
            StopIteration: The stream ended.
            DeadlineError: The server is gone, or the message took too long.
        """
        with self._lock:
            self._num_reads += 1
            self._reading = self._num_reads, time.monotonic()
        try:
            chunk = self._reader.read_chunk()
        except (pa.ArrowException, OSError) as error:
            if self._verdict:
                raise DeadlineError(f"{self._what}: {self._verdict}") from error
            raise from_flight(error) from error
        finally:
            with self._lock:
                self._reading = None
        return chunk.data, chunk.app_metadata.to_pybytes() if chunk.app_metadata else b""

    def cancel(self) -> None:
        """End the stream; a blocked `read` returns at once with an error."""
        with contextlib.suppress(pa.ArrowException, OSError):
            self._reader.cancel()

    def close(self) -> None:
        """End the stream and the watchdog. Idempotent; does not wait."""
        self._stop.set()
        self.cancel()

    def __enter__(self) -> ReadWatchdog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        asked_s = 0.0
        while not self._stop.wait(min(LOOK_S, self._quiet_s / 2)):
            with self._lock:
                reading = self._reading
            now_s = time.monotonic()
            if reading is None or now_s - max(reading[1], asked_s) < self._quiet_s:
                continue
            if now_s - reading[1] > self._timeout_s:
                self._end(reading, f"no message for {self._timeout_s:g} s")
            elif not self._is_there():
                self._end(reading, f"no message for {self._quiet_s:g} s, and it does not answer")
            asked_s = time.monotonic()

    def _end(self, reading: tuple[int, float], verdict: str) -> None:
        """Cancel the stream, unless the message has come meanwhile."""
        with self._lock:
            if self._reading != reading:
                return
            self._verdict = verdict
        self.cancel()
