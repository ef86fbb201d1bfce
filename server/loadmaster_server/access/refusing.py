"""Refusals become answers, and rows of the audit log: here, whichever route they come from."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from loadmaster_flight.wire.errors import ForbiddenError, GoneError, LoadmasterError, UnauthenticatedError

from .caller import caller_of
from .principal import ANONYMOUS, Principal
from .service import AccessService

LOG = logging.getLogger(__name__)
Answer = Callable[[Request, Exception], Awaitable[Response]]
ASKS_WHO = "read_session"
"""Nobody is refused anything who asks whether they are signed in."""
ASKS_TICKET = "issue_ticket"


def add_refusal_handlers(app: FastAPI, access: AccessService, answer: Answer) -> None:
    """Write refusals down before `answer` makes problems of them."""

    async def on_refusal(request: Request, error: Exception) -> Response:
        assert isinstance(error, LoadmasterError)
        caller = caller_of(request)
        if not (caller.route == ASKS_WHO and caller.is_unnamed):
            await note_refusal(access, request, error)
        response = await answer(request, error)
        if isinstance(error, UnauthenticatedError):
            response.headers["www-authenticate"] = "Bearer"
        return response

    async def on_gone(request: Request, error: Exception) -> Response:
        """A ticket of a generation that is over is a refusal; any other step or run that is gone is none."""
        is_ticket = caller_of(request).route == ASKS_TICKET
        return await (on_refusal if is_ticket else answer)(request, error)

    for cls in (UnauthenticatedError, ForbiddenError):
        app.add_exception_handler(cls, on_refusal)
    app.add_exception_handler(GoneError, on_gone)


async def note_refusal(access: AccessService, request: Request, error: LoadmasterError) -> None:
    """Write a refusal down; a store that is away must not hide it."""
    try:
        await run_in_threadpool(_note, access, request, error)
    except LoadmasterError as trouble:
        target = caller_of(request).target
        LOG.warning("%s was refused, which cannot be written down: %s", target, trouble)


def _note(access: AccessService, request: Request, error: LoadmasterError) -> None:
    caller, who = caller_of(request), getattr(request.state, "principal", None)
    access.refusals.note(
        caller,
        author=who.name if isinstance(who, Principal) else ANONYMOUS,
        code=error.code,
        run=str(request.path_params.get("run", ""))[:63],
        message=error.message,
    )
