"""How much somebody may send, by who they are: looked at before a byte of it is read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from loadmaster_flight.wire.errors import BadRequestError, LoadmasterError

from .refusing import note_refusal
from .service import AccessService

MAX_UNKNOWN = 64 << 10
MAX_BODY = 4 << 20
MAX_BEAT = 32 << 20
MAX_RUN = 512 << 20
"""A run of 306 sources names all of their shards."""
_LARGER = ((re.compile(r"/api/v1/runs(/[^/]+/sources)?"), MAX_RUN), (re.compile(r"/api/v1/actors/.+"), MAX_BEAT))
Answer = Callable[[Request, LoadmasterError, int], Awaitable[Response]]


class BodyLimit:
    """Refuses bodies that are too large, or whose length is not told: 413, 411. Large ones of nobody known: 401.

    Args:
        app: The next one.
        access: Knows who asks.
        answer: Makes an answer of an error, and the status.
    """

    def __init__(self, app: ASGIApp, access: AccessService, answer: Answer) -> None:
        self._app, self._access, self._answer = app, access, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if (refused := await self._refused(request)) is None:
            await self._app(scope, receive, send)
        else:
            response = await self._answer(request, *refused)
            await response(scope, receive, send)

    async def _refused(self, request: Request) -> tuple[LoadmasterError, int] | None:
        told = request.headers.get("content-length", "0" if "transfer-encoding" not in request.headers else "")
        if not (told.isascii() and told.isdecimal()):
            return BadRequestError("a body must come with its content-length"), 411
        size_bytes, limit = int(told), _limit_of(request.url.path)
        if size_bytes > limit:
            return BadRequestError(f"a body must have at most {limit} bytes here, got {size_bytes}"), 413
        try:
            if size_bytes > MAX_UNKNOWN:
                await self._access.require_known(request)
        except LoadmasterError as error:
            await note_refusal(self._access, request, error)
            return error, error.http_status
        return None


def _limit_of(path: str) -> int:
    return next((limit for pattern, limit in _LARGER if pattern.fullmatch(path)), MAX_BODY)
