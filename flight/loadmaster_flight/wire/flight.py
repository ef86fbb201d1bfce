"""Calling and serving Arrow Flight with the defaults that this traffic needs.

Why each default: without `bdp_probe=0` an unread stream buffers gigabytes in the client; `keepalive_time` finds a dead
host (a deadlocked one is found by heartbeats); a proxy in the environment would even take loopback traffic.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.flight as fl

from .actions import MAX_ACTION_BYTES, Action
from .addresses import address_at, host_of, is_loopback, location_of, refuse_plain
from .detours import detour_of
from .errors import BadRequestError, InternalError, LoadmasterError, from_flight, to_flight
from .tls import Tls, check_listening, tls_of_environment

LOG = logging.getLogger(__name__)
WHO_MAY_NOT = ("UNAUTHENTICATED", "FORBIDDEN")
TELL_EVERY_S = 60.0
CLIENT_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 << 20),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 1 << 30),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
]


class FlightPeer:
    """A client of one Flight server: errors come out as our tree, every call has a deadline.

    One peer is one connection; use one per concurrent stream. Not to be carried over a fork.

    Args:
        address: `grpc://host:port` on this machine, or `grpc+tls://host:port`, with `?name=` where the certificate is
            for another name than the host's.
        tls: Whom to trust and what to show; None: what the environment says.

    Raises:
        BadRequestError: The address is none, or a plain one of another machine.
        UnavailableError: A certificate cannot be read.
    """

    def __init__(self, address: str, *, tls: Tls | None = None) -> None:
        self.address = address
        refuse_plain(address)
        location, name = location_of(address)
        arguments: dict[str, Any] = {"generic_options": CLIENT_OPTIONS}
        if location.startswith("grpc+tls:"):
            location, name = detour_of(location, name)
            arguments |= (tls or tls_of_environment()).flight_client()
            arguments |= {"override_hostname": name} if name else {}
        try:
            self._client = fl.FlightClient(location, **arguments)
        except (pa.ArrowException, OSError) as error:
            raise BadRequestError(f"not a Flight address: {address!r} ({error})") from error

    def action(self, name: Action, body: dict[str, Any] | None = None, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """Run an action: JSON in, JSON out."""
        options = fl.FlightCallOptions(timeout=timeout_s)
        try:
            results = list(self._client.do_action(fl.Action(name.value, json.dumps(body or {}).encode()), options))
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error) from error
        answer: dict[str, Any] = json.loads(results[0].body.to_pybytes()) if results else {}
        return answer

    def open(self, ticket: bytes, *, timeout_s: float = 0.0) -> fl.FlightStreamReader:
        """Open a stream; `timeout_s` covers the whole of it, 0 means none (then use `ReadWatchdog`)."""
        options = fl.FlightCallOptions(timeout=timeout_s) if timeout_s else fl.FlightCallOptions()
        try:
            return self._client.do_get(fl.Ticket(ticket), options)
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error) from error

    def read_all(self, ticket: bytes, *, timeout_s: float) -> pa.Table:
        """Open a stream and read it to its end."""
        reader = self.open(ticket, timeout_s=timeout_s)
        try:
            return reader.read_all()
        except (pa.ArrowException, OSError) as error:
            raise from_flight(error) from error

    def close(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):
            self._client.close()

    def __enter__(self) -> FlightPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FlightService(fl.FlightServerBase):
    """Base of the Flight servers: only our errors leave, actions are JSON, `stop` never hangs.

    Subclasses override `stream(ticket_bytes, context)` and `act(action, body)`.

    Args:
        host: Where to listen; beyond this machine with TLS only.
        port: 0 takes a free one.
        tls: Certificates to serve with; None: plain text.

    Raises:
        BadRequestError: It would be plain text beyond this machine.
        UnavailableError: A certificate cannot be used.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, tls: Tls | None = None) -> None:
        self._host, self._tls = host, tls or Tls()
        check_listening(host, self._tls)
        self._scheme = "grpc+tls" if self._tls.is_serving else "grpc"
        place = f"[{host}]" if ":" in host else host
        super().__init__(f"{self._scheme}://{place}:{port}", **self._tls.flight_server())
        self.draining = threading.Event()
        self._refusals: Counter[str] = Counter()
        self._refusal_lock = threading.Lock()
        self._told_s: dict[str, float] = {}

    @property
    def address(self) -> str:
        """How it is reached; where it listens at all networks, by the name of the machine."""
        return address_at(self._scheme, self._host, self.port, name=self._tls.name if self._tls.is_serving else "")

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        raise BadRequestError("this service has no streams")

    def act(self, action: Action, body: dict[str, Any]) -> dict[str, Any]:
        raise BadRequestError(f"this service has no action {action.value!r}")

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        try:
            return self.stream(ticket.ticket, context)
        except Exception as error:
            raise self.refuse(error) from None

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> Iterator[fl.Result]:
        try:
            if action.type not in {a.value for a in Action}:
                raise BadRequestError(f"action must be one of {[a.value for a in Action]}, got {action.type!r}")
            if action.body and len(action.body) > MAX_ACTION_BYTES:
                raise BadRequestError(
                    f"the body of an action must have at most {MAX_ACTION_BYTES} bytes, got {len(action.body)}"
                )
            body = json.loads(action.body.to_pybytes() or b"{}") if action.body else {}
            if not isinstance(body, dict):
                raise BadRequestError(f"the body of action {action.type!r} must be a JSON object")
            answer = self.act(Action(action.type), body)
        except (ValueError, RecursionError) as error:
            raise self.refuse(BadRequestError(f"action {action.type!r}: {error}")) from None
        except Exception as error:
            raise self.refuse(error) from None
        return iter([fl.Result(json.dumps(answer).encode())])

    def list_actions(self, context: fl.ServerCallContext) -> list[tuple[str, str]]:
        return [(a.value, "JSON in, JSON out") for a in Action]

    def refuse(self, error: Exception) -> Exception:
        """What a caller gets to see of an error; counted by its code. Any thread may call it."""
        code = error.code if isinstance(error, LoadmasterError) else InternalError.code
        now_s = time.monotonic()
        with self._refusal_lock:
            self._refusals[code] += 1
            is_told = code in WHO_MAY_NOT and now_s - self._told_s.get(code, -TELL_EVERY_S) >= TELL_EVERY_S
            if is_told:
                self._told_s[code] = now_s
        if is_told:
            LOG.warning("refused a caller, %s: %s (told once a minute, counted always)", code, error)
        told: Exception = to_flight(error)
        return told

    def refused_callers(self) -> int:
        """How many calls came from who had no good ticket for what they asked for."""
        refusals = self.refusals()
        return sum(refusals.get(code, 0) for code in WHO_MAY_NOT)

    def refusals(self) -> dict[str, int]:
        """How many calls and streams ended with an error, by its code."""
        with self._refusal_lock:
            return dict(self._refusals)

    def _refuse(self, *_: Any) -> NoReturn:
        raise self.refuse(BadRequestError("this service has tickets (DoGet) and actions alone"))

    # What Flight has besides: pyarrow would answer with a traceback.
    list_flights = get_flight_info = do_put = do_exchange = _refuse

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        """Nothing has a schema here. Whatever is raised, pyarrow adds its traceback: so no fields are the answer."""
        return fl.SchemaResult(pa.schema([]))

    def stop(self, *, grace_s: float = 2.0) -> None:
        """Refuse new calls, let running ones end for `grace_s`, return. Idempotent; never blocks for longer."""
        self.draining.set()
        thread = threading.Thread(target=self.shutdown, daemon=True)
        thread.start()
        thread.join(grace_s)


def guarded(messages: Iterator[Any], refuse: Callable[[Exception], Exception] = to_flight) -> Iterator[Any]:
    """Wrap a generator that feeds a GeneratorStream so that only our errors leave it, as `refuse` tells them."""
    try:
        yield from messages
    except GeneratorExit:
        raise
    except Exception as error:
        raise refuse(error) from None


def loopback_only(address: str) -> None:
    """Refuse an address beyond this machine."""
    if not is_loopback(host := host_of(address)):
        raise BadRequestError(f"host must be a loopback address, got {host!r}")


def tune_process() -> None:
    """For server processes: keep receive buffers (glibc malloc) and hand over the GIL sooner.

    Freed memory stays in the process; both thresholds must be set together, one alone halves throughput.
    """
    sys.setswitchinterval(0.0005)
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 30)
        libc.mallopt(-1, (1 << 31) - 1)
