"""The planner's HTTP server in a thread: for its own process, for tests, and for one-process setups."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time

import uvicorn

from loadmaster_flight.wire.addresses import address_at
from loadmaster_flight.wire.errors import DeadlineError, LoadmasterError, UnavailableError
from loadmaster_flight.wire.tls import Tls

from .app import Planner
from .seat import PlannerSeat
from .settings import PlannerSettings

LOG = logging.getLogger(__name__)
GRACE_S = 1
START_TIMEOUT_S = 30.0
LOOK_S = 1.0
"""How often the certificates' files are looked at."""


class _Server(uvicorn.Server):
    """Ends long polls before uvicorn waits for their connections."""

    def __init__(self, config: uvicorn.Config, seat: PlannerSeat) -> None:
        super().__init__(config)
        self._seat = seat

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._seat.end_waits()
        await super().shutdown(sockets)


class CertificateWatch:
    """A server's context that follows the files of its certificates, from a thread of its own. `close` it.

    New connections get what the files held when they were last looked at; what cannot be used is told of once, and the
    old ones stay.

    Args:
        tls: The files.
        look_s: How often they are looked at.

    Attributes:
        context: For the server, all its life.
        trouble: Why the files cannot be used now; empty: they can.

    Raises:
        UnavailableError: A file cannot be used.
    """

    def __init__(self, tls: Tls, *, look_s: float = LOOK_S) -> None:
        self._tls, self._look_s = tls, look_s
        self._stamp, self.trouble = tls.stamp(), ""
        self._current = tls.server_context()
        self.context = tls.server_context()
        self.context.sni_callback = self._choose  # at each handshake, so that a pair is never half replaced
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="certificates", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking. Idempotent."""
        self._stop.set()
        self._thread.join(1.0)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _watch(self) -> None:
        while not self._stop.wait(self._look_s):
            try:
                self._follow()
                self.trouble = ""
            except LoadmasterError as error:
                if error.message != self.trouble:
                    LOG.warning("%s; the old ones are used", error)
                self.trouble = error.message

    def _follow(self) -> None:
        if (stamp := self._tls.stamp()) != self._stamp:
            self._current, self._stamp = self._tls.server_context(), stamp
            LOG.info("the certificate %s was read again", self._tls.cert)


class PlannerServer:
    """A planner that listens. `with PlannerServer(settings) as server: server.url`.

    It acts while it has the lease of its database, and stands by while another planner has it.

    Any thread may call it; signals are left to the caller.

    Args:
        settings: Where to listen and where the state is.

    Attributes:
        url: `http://host:port` or `https://host:port`, with the port that is really used.

    Raises:
        UnavailableError: The port is taken, or a certificate cannot be used.
    """

    def __init__(self, settings: PlannerSettings) -> None:
        self._socket = _listen(settings.host, settings.port)
        scheme = "https" if settings.tls.is_serving else "http"
        self.url = address_at(scheme, settings.host, self._socket.getsockname()[1])
        try:
            self._watch = CertificateWatch(settings.tls) if settings.tls.is_serving else None
            self.seat = PlannerSeat(settings, self.url)
        except BaseException:
            self._socket.close()
            raise
        config = uvicorn.Config(
            self.seat,
            log_config=None,
            log_level="warning",
            access_log=False,
            ws="none",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=GRACE_S,
        )
        config.load()
        config.ssl = self._watch.context if self._watch is not None else None
        self._server = _Server(config, self.seat)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    @property
    def planner(self) -> Planner:
        """The planner that acts here; see `PlannerSeat.planner`."""
        return self.seat.planner

    def start(self) -> None:
        """Listen; returns when requests are answered.

        Raises:
            DeadlineError: It did not come up; the log says why.
        """
        self._thread.start()
        until = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            self._thread.join(0.01)
            if not self._thread.is_alive() or time.monotonic() > until:
                raise DeadlineError(f"the planner at {self.url} did not come up")

    def stop(self) -> None:
        """Stop listening, answer what is open, close the store: within two seconds. Idempotent."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(GRACE_S + 1.0)
        self.seat.close()
        self._socket.close()
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> PlannerServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UnavailableError(f"port {port} of {host} cannot be listened on: {error.strerror}") from error
    listener.setblocking(False)
    return listener
