"""The one place where errors become HTTP answers: problem+json (RFC 9457)."""

from __future__ import annotations

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from loadmaster_flight.telemetry.logs import PLACE
from loadmaster_flight.wire.errors import BadRequestError, InternalError, LoadmasterError, NotFoundError, to_problem

from .faults import describe_faults

LOG = logging.getLogger(__name__)
PROBLEM_JSON = "application/problem+json"


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of the app as a problem."""
    app.add_exception_handler(LoadmasterError, problem_answer)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(UnicodeEncodeError, _on_bad_text)
    app.add_exception_handler(Exception, _on_bug)


def _problem(error: LoadmasterError, status: int | None = None) -> JSONResponse:
    body = to_problem(error)
    body["status"] = status or body["status"]
    return JSONResponse(body, status_code=body["status"], media_type=PROBLEM_JSON)


async def problem_answer(request: Request, error: Exception) -> JSONResponse:
    """The answer to one of our errors."""
    assert isinstance(error, LoadmasterError)
    if error.http_status >= 500 and not error.retry:
        LOG.error("%s %s: %s", request.method, request.url.path, error, exc_info=error, extra=_place(request))
    return _problem(error)


async def refused_body(request: Request, error: LoadmasterError, status: int) -> JSONResponse:
    """The answer to a body that is not read."""
    return _problem(error, status)


async def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return _problem(BadRequestError(describe_faults(error.errors())))


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}: {error.detail}"
    cls = NotFoundError if error.status_code == 404 else BadRequestError
    return _problem(cls(what), error.status_code)


async def _on_bad_text(request: Request, error: Exception) -> JSONResponse:
    """JSON may hold half of a surrogate pair, which is no text: the store finds out."""
    assert isinstance(error, UnicodeEncodeError)
    return _problem(BadRequestError(f"text must be valid Unicode: {error.reason} at character {error.start}"))


async def _on_bug(request: Request, error: Exception) -> JSONResponse:
    LOG.error("%s %s failed", request.method, request.url.path, exc_info=error, extra=_place(request))
    return _problem(InternalError(f"{type(error).__name__} in {request.method} {request.url.path}: see the log"))


def _place(request: Request) -> dict[str, str]:
    """What of the path the log has fields for."""
    return {name: value for name, value in request.path_params.items() if name in PLACE}
