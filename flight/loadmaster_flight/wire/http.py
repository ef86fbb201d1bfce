"""A small HTTP client for the planner: JSON messages, Arrow bodies, problem+json errors, deadlines and retries."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from .addresses import refuse_plain
from .control import from_json, to_json
from .errors import (
    BadRequestError,
    InternalError,
    LoadmasterError,
    NotReadyError,
    UnavailableError,
    from_problem,
    tls_failure,
)
from .jitter import jittered
from .tls import Tls, tls_of_environment
from .token import BearerToken

API = "/api/v1"
MAX_IDLE = 8
SCHEMES = {"http": 80, "https": 443}
T = TypeVar("T")


class PlannerClient:
    """Calls the planner. Any threads may use it at once: each call takes an idle connection or opens one.

    Args:
        url: `https://host:port` of the planner, or `http://host:port` on this machine.
        timeout_s: Deadline of one call.
        token: Bearer token; None: what the environment says, see `BearerToken`.
        tls: Whom to trust and what to show; None: what the environment says.

    Raises:
        BadRequestError: The url is none, or plain text to another machine; or the token could not be sent.
        UnavailableError: A certificate cannot be used.
    """

    def __init__(self, url: str, *, timeout_s: float = 30.0, token: str | None = None, tls: Tls | None = None) -> None:
        self.url = url.rstrip("/")
        self._scheme, self._host, self._port = _place_of(url)
        refuse_plain(url)
        self._timeout_s = timeout_s
        self._token, self._tls = BearerToken(token), Tls()
        if self._scheme == "https":
            self._tls = tls or tls_of_environment()
            self._tls.client_context()
        self._idle: list[http.client.HTTPConnection] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def get(self, path: str, reply: type[T], **query: Any) -> T:
        """GET a message."""
        return from_json(reply, json.loads(self.request("GET", path, query=query)))

    def post(self, path: str, message: Any, reply: type[T]) -> T:
        """POST a message and read one back."""
        return from_json(reply, json.loads(self.request("POST", path, body=message)))

    def request(self, method: str, path: str, *, body: Any = None, query: dict[str, Any] | None = None) -> bytes:
        """One call, once. Paths are below /api/v1.

        Raises:
            UnavailableError: The planner cannot be reached or broke off; it may have acted.
            LoadmasterError: What the planner answered.
        """
        payload = None if body is None else json.dumps(to_json(body)).encode()
        token = self._token.text
        status, data = self._call(method, path, payload, query, token)
        if status == 401 and self._token.renew(token):
            status, data = self._call(method, path, payload, query, self._token.text)
        if status >= 400:
            raise _error_of(status, data)
        return data

    def lines(self, path: str, *, query: dict[str, Any] | None = None) -> Iterator[bytes]:
        """GET an answer that comes line by line; the deadline is that of each line.

        Raises:
            UnavailableError, LoadmasterError: As `request`.
        """
        connection = self._open()
        try:
            connection.request("GET", _target(path, query), headers=_bearer(self._token.text))
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _error_of(answer.status, answer.read())
            yield from answer
        except (OSError, http.client.HTTPException) as error:
            raise self._broken("GET", path, error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Close the idle connections; one in use is closed when its call ends. Idempotent."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _call(
        self, method: str, path: str, payload: bytes | None, query: dict[str, Any] | None, token: str
    ) -> tuple[int, bytes]:
        headers = _bearer(token) | ({"content-type": "application/json"} if payload else {})
        connection = self._take()
        try:
            connection.request(method, _target(path, query), body=payload, headers=headers)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._broken(method, path, error) from error
        except BaseException:  # an interrupt leaves half an answer behind
            connection.close()
            raise
        self._give_back(connection)
        return answer.status, data

    def _broken(self, method: str, path: str, error: OSError | http.client.HTTPException) -> LoadmasterError:
        what = f"planner {self.url}: {method} {path}"
        if isinstance(error, ssl.SSLError) and (failure := tls_failure(f"{what}: {error}")):
            return failure
        return UnavailableError(f"{what}: {error or type(error).__name__}")

    def _take(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._open()

    def _open(self) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = self._tls.client_context()
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def _target(path: str, query: dict[str, Any] | None) -> str:
    return API + quote(path) + ("?" + urlencode(query) if query else "")


def _place_of(url: str) -> tuple[str, str, int]:
    wrong = f"the planner's url must look like http://host:port or https://host:port, got {url!r}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:  # brackets without an end, a port that is none
        raise BadRequestError(f"{wrong} ({error})") from error
    if parts.scheme not in SCHEMES or not host:
        raise BadRequestError(wrong)
    return parts.scheme, host, port or SCHEMES[parts.scheme]


def _error_of(status: int, data: bytes) -> LoadmasterError:
    try:
        body = json.loads(data)
    except ValueError:
        return InternalError(f"the planner answered {status}: {data[:200]!r}")
    return from_problem(body) if isinstance(body, dict) else InternalError(f"the planner answered {status}: {body}")


def retrying(
    call: Callable[[], T], *, deadline_s: float, stop: threading.Event | None = None, what: str = "the planner"
) -> T:
    """Repeat `call` while it fails with a retryable error: 50 ms to 2 s apart with jitter, until `deadline_s` from now.

    Raises:
        LoadmasterError: A permanent one at once; the last retryable one, with a note, when time is up or `stop` is set.
    """
    until, pause_s = time.monotonic() + deadline_s, 0.05
    while True:
        try:
            return call()
        except LoadmasterError as error:
            left_s = until - time.monotonic()
            if not error.retry or left_s <= 0 or (stop is not None and stop.is_set()):
                if error.retry:
                    error.add_note(f"gave up on {what} after {deadline_s:.0f} s")
                raise
            wait_s = min(left_s, jittered(pause_s), 2.0)
            (stop or threading.Event()).wait(wait_s)
            pause_s = pause_s * 1.5 if not isinstance(error, NotReadyError) else 0.05
