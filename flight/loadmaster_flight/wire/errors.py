"""One tree of errors, mapped once to Flight status and once to HTTP problem+json (RFC 9457).

LoadmasterError
├── SpecError             BAD_SPEC          a run spec or a field of it is wrong
├── SourceError           SOURCE_ERROR      a source cannot be opened, listed or read
├── BadRequestError       BAD_REQUEST       a request names something impossible
├── MeshError             MESH_MISMATCH     a rank's view of the mesh differs from the run's
├── UnauthenticatedError  UNAUTHENTICATED   no ticket, a forged one, or an expired one
├── ForbiddenError        FORBIDDEN         a valid ticket for something else
├── NotFoundError         NOT_FOUND         no such run, stream, step or actor
├── ConflictError         CONFLICT          the state has moved on; carries what is current
├── StaleError            STALE             a change rests on a version that is not the newest; carries that one
├── GoneError             GONE              a step behind the common acknowledgement, a fenced generation
├── DataError             DATA_ERROR        content that cannot be served and may not be skipped
├── RunPausedError        RUN_PAUSED        the run waits for a person; the message says why
├── InternalError         INTERNAL          a fault of ours
└── RetryableError        (the call may be repeated as it is)
    ├── BusyError         BUSY              admission is full
    ├── NotReadyError     NOT_READY         not planned, built or joined yet
    ├── MovedError        MOVED             served elsewhere now; resolve again
    ├── UnavailableError  UNAVAILABLE       the peer cannot be reached
    └── DeadlineError     DEADLINE          a wait ran out; names who waited for what
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.flight as fl

MAX_MESSAGE_CHARS = 1500  # longer Flight errors lose their class on the way (gRPC trailers)


class LoadmasterError(Exception):
    """Root of every error that Loadmaster raises on purpose.

    Attributes:
        message: One sentence that names field, rule and value, or source, shard, row, rank and step.
        details: Small JSON-able facts for machines.
    """

    code: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    retry: ClassVar[bool] = False

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details


class SpecError(LoadmasterError):
    code = "BAD_SPEC"
    http_status = 422


class SourceError(LoadmasterError):
    code = "SOURCE_ERROR"
    http_status = 422


class BadRequestError(LoadmasterError):
    code = "BAD_REQUEST"
    http_status = 400


class MeshError(LoadmasterError):
    code = "MESH_MISMATCH"
    http_status = 409


class UnauthenticatedError(LoadmasterError):
    code = "UNAUTHENTICATED"
    http_status = 401


class ForbiddenError(LoadmasterError):
    code = "FORBIDDEN"
    http_status = 403


class NotFoundError(LoadmasterError):
    code = "NOT_FOUND"
    http_status = 404


class ConflictError(LoadmasterError):
    code = "CONFLICT"
    http_status = 409


class StaleError(LoadmasterError):
    code = "STALE"
    http_status = 412


class GoneError(LoadmasterError):
    code = "GONE"
    http_status = 410


class DataError(LoadmasterError):
    code = "DATA_ERROR"
    http_status = 500


class RunPausedError(LoadmasterError):
    code = "RUN_PAUSED"
    http_status = 409


class InternalError(LoadmasterError):
    code = "INTERNAL"
    http_status = 500


class RetryableError(LoadmasterError):
    code = "UNAVAILABLE"
    http_status = 503
    retry = True


class BusyError(RetryableError):
    code = "BUSY"


class NotReadyError(RetryableError):
    code = "NOT_READY"


class MovedError(RetryableError):
    code = "MOVED"


class UnavailableError(RetryableError):
    code = "UNAVAILABLE"


class DeadlineError(RetryableError):
    code = "DEADLINE"
    http_status = 504


BY_CODE: dict[str, type[LoadmasterError]] = {
    cls.code: cls
    for cls in (
        SpecError,
        SourceError,
        BadRequestError,
        MeshError,
        UnauthenticatedError,
        ForbiddenError,
        NotFoundError,
        ConflictError,
        StaleError,
        GoneError,
        DataError,
        RunPausedError,
        InternalError,
        BusyError,
        NotReadyError,
        MovedError,
        UnavailableError,
        DeadlineError,
    )
}

_FLIGHT_CLASS: dict[str, type[fl.FlightError]] = {
    "UNAUTHENTICATED": fl.FlightUnauthenticatedError,
    "FORBIDDEN": fl.FlightUnauthorizedError,
    "BUSY": fl.FlightUnavailableError,
    "NOT_READY": fl.FlightUnavailableError,
    "MOVED": fl.FlightUnavailableError,
    "UNAVAILABLE": fl.FlightUnavailableError,
    "DEADLINE": fl.FlightTimedOutError,
    "INTERNAL": fl.FlightInternalError,
}

_TLS_WORDS = ("certificate", "ssl handshake failed", "unknown_ca", "unknown ca", "wrong_version", "record_layer_fail")


def from_code(code: str, message: str, details: dict[str, Any] | None = None) -> LoadmasterError:
    """Rebuild an error from what travelled; an unknown code becomes `InternalError`."""
    cls = BY_CODE.get(code, InternalError)
    return cls(message, **{str(k): v for k, v in (details or {}).items()})


def to_flight(error: BaseException) -> fl.FlightError:
    """Turn any exception into one Flight error whose `extra_info` is JSON `{code, message, details}`.

    Exceptions that are not ours become INTERNAL with their class name only: a traceback belongs in the server's log.
    """
    if isinstance(error, fl.FlightError):
        return error
    if not isinstance(error, LoadmasterError):
        error = InternalError(f"{type(error).__name__}: {error}")
    message = error.message[:MAX_MESSAGE_CHARS]
    body: dict[str, Any] = {"code": error.code, "message": message}
    details = {**body, "details": error.details}
    extra = json.dumps(details, default=str)
    if len(extra) > 2 * MAX_MESSAGE_CHARS:
        extra = json.dumps(body)
    return _FLIGHT_CLASS.get(error.code, fl.FlightServerError)(f"{error.code}: {message}", extra.encode())


def from_flight(error: BaseException) -> LoadmasterError:
    """Turn what a Flight call raised into our tree; certificate trouble is never retryable."""
    if isinstance(error, LoadmasterError):
        return error
    extra = getattr(error, "extra_info", b"") or b""
    try:
        body = json.loads(extra)
        return from_code(str(body["code"]), str(body["message"]), body.get("details"))
    except (ValueError, KeyError, TypeError):
        pass
    text = str(error)
    if isinstance(error, fl.FlightUnavailableError):
        return tls_failure(text[:300]) or UnavailableError(text[:300])
    if isinstance(error, fl.FlightTimedOutError):
        return DeadlineError(text[:300])
    if isinstance(error, fl.FlightCancelledError):
        return UnavailableError(f"the call was cancelled: {text[:300]}")
    if isinstance(error, (pa.ArrowException, OSError)):
        return UnavailableError(text[:300])
    return InternalError(f"{type(error).__name__}: {text[:300]}")


def tls_failure(message: str) -> LoadmasterError | None:
    """What is wrong where two sides cannot agree on TLS, from what a library says; None: that is not the matter.

    Not every failure while a connection is opened: a peer that is just ending breaks off too, and comes back.
    """
    if not any(word in message.lower() for word in _TLS_WORDS):
        return None
    return UnauthenticatedError(
        f"TLS could not be agreed: {message}; compare address, name and certificates of both sides (LOADMASTER_TLS_CA, "
        "LOADMASTER_TLS_CERT)",
        tls=True,
    )


def to_problem(error: LoadmasterError) -> dict[str, Any]:
    """The body of an `application/problem+json` answer."""
    return {
        "type": f"urn:loadmaster:{error.code.lower()}",
        "title": error.code,
        "status": error.http_status,
        "detail": error.message,
        "code": error.code,
        "details": error.details,
    }


def from_problem(body: dict[str, Any]) -> LoadmasterError:
    """Rebuild the error of an HTTP answer; takes FastAPI's own error bodies too."""
    code = str(body.get("code", "INTERNAL"))
    return from_code(code, str(body.get("detail", body)), body.get("details") or {})
