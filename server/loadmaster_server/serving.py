"""The planner's HTTP server in a thread: for its own process, for tests, and for one-process setups."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn

from loadmaster_flight.wire.errors import DeadlineError, UnavailableError

from .app import Planner
from .seat import PlannerSeat
from .settings import PlannerSettings

GRACE_S = 1
START_TIMEOUT_S = 30.0


class _Server(uvicorn.Server):
    """Ends long polls before uvicorn waits for their connections."""

    def __init__(self, config: uvicorn.Config, seat: PlannerSeat) -> None:
        super().__init__(config)
        self._seat = seat

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._seat.end_waits()
        await super().shutdown(sockets)


class PlannerServer:
    """A planner that listens. `with PlannerServer(settings) as server: server.url`.

    It acts while it has the lease of its database, and stands by while another planner has it.

    Any thread may call it; signals are left to the caller.

    Args:
        settings: Where to listen and where the state is.

    Attributes:
        url: `http://host:port`, with the port that is really used.

    Raises:
        UnavailableError: The port is taken.
    """

    def __init__(self, settings: PlannerSettings) -> None:
        self._socket = _listen(settings.host, settings.port)
        self.url = _url(self._socket)
        try:
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

    def __enter__(self) -> PlannerServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
