"""Refusals become answers, and rows of the audit log: here, whichever route they come from."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from loadmaster_flight.wire.errors import ForbiddenError, LoadmasterError, UnauthenticatedError

from .caller import caller_of
from .principal import ANONYMOUS, Principal
from .service import AccessService

LOG = logging.getLogger(__name__)
Answer = Callable[[Request, Exception], Awaitable[Response]]
ASKS_WHO = "read_session"
"""Nobody is refused anything who asks whether they are signed in."""


def add_refusal_handlers(app: FastAPI, access: AccessService, answer: Answer) -> None:
    """Write refusals down before `answer` makes problems of them."""

    async def on_refusal(request: Request, error: Exception) -> Response:
        assert isinstance(error, LoadmasterError)
        caller = caller_of(request)
        if not (caller.route == ASKS_WHO and caller.is_unnamed):
            try:
                await run_in_threadpool(_note, access, request, error)
            except LoadmasterError as trouble:  # a store that is away must not hide the refusal
                LOG.warning("%s was refused, which cannot be written down: %s", caller.target, trouble)
        response = await answer(request, error)
        if isinstance(error, UnauthenticatedError):
            response.headers["www-authenticate"] = "Bearer"
        return response

    for cls in (UnauthenticatedError, ForbiddenError):
        app.add_exception_handler(cls, on_refusal)


def _note(access: AccessService, request: Request, error: LoadmasterError) -> None:
    caller, who = caller_of(request), getattr(request.state, "principal", None)
    access.refusals.note(
        caller,
        author=who.name if isinstance(who, Principal) else ANONYMOUS,
        code=error.code,
        run=str(request.path_params.get("run", ""))[:63],
        message=error.message,
    )
