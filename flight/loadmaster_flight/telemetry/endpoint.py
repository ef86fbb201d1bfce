"""`GET /metrics` of a process that has no HTTP server of its own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from ..wire.errors import UnavailableError
from ..wire.tls import Tls, check_listening
from .exposition import Exposition
from .metrics import Readings

LOG = logging.getLogger(__name__)
REQUEST_S = 5.0
"""Who has not sent a request after this long is cut off."""
POLL_S = 0.1
PATH = "/metrics"


class MetricsEndpoint:
    """Answers scrapes in a thread of its own. `close` it, or use `with`.

    Args:
        role: loader or constructor.
        collect: Looks at the process; called by the threads that answer.
        host: Where to listen; beyond this machine with TLS only.
        port: 0 takes a free one.
        tls: Certificates to serve with; None: plain text.

    Raises:
        BadRequestError: It would be plain text beyond this machine; or a certificate cannot be used.
        UnavailableError: The port is taken.
    """

    def __init__(
        self,
        role: str,
        collect: Callable[[], Readings],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
    ) -> None:
        tls = tls or Tls()
        check_listening(host, tls)
        if tls.is_serving:
            tls.server_context()  # what cannot be used is told now
        self._exposition = Exposition(role, collect)
        server_class = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, self._answer, server_class, _Handler)
            self._server.tls = tls
        except OSError as error:
            raise UnavailableError(f"metrics port {port} of {host} cannot be listened on: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=[POLL_S], name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to scrape, with the port that is really used."""
        host, port = str(self._server.server_address[0]), self._server.server_address[1]
        scheme = "https" if self._server.tls.is_serving else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    def close(self) -> None:
        """Stop answering. Idempotent, at most about a tenth of a second."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> MetricsEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            start_response("404 Not Found", [("content-type", "text/plain; charset=utf-8")])
            return [f"GET {PATH} is all there is\n".encode()]
        body, content_type = self._exposition.render(environ.get("HTTP_ACCEPT", ""))
        start_response("200 OK", [("content-type", content_type), ("content-length", str(len(body)))])
        return [body] if environ["REQUEST_METHOD"] == "GET" else []


class _Server(ThreadingMixIn, WSGIServer):
    """A thread a connection; files of certificates may be replaced while it runs."""

    daemon_threads = True
    tls = Tls()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Called by the connection's own thread: a slow handshake holds nobody else up."""
        if not self.tls.is_serving:
            super().finish_request(request, client_address)
            return
        request.settimeout(REQUEST_S)
        with self.tls.server_context().wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that breaks off, or speaks no TLS."""
        LOG.debug("a scrape from %s failed", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: scrapes come every few seconds."""
