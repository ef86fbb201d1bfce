"""HTTP of access: signing in, tokens, sessions, and whether the planner is there."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Request, Response

from loadmaster_flight.wire.errors import UnauthenticatedError
from loadmaster_flight.wire.http import API

from ..store import SessionRecord, TokenRecord
from .caller import caller_of, check_site, cookie_name
from .keys import csrf_of
from .needs import needs
from .principal import Principal, Role
from .schemas import (
    HealthView,
    NewTokenView,
    SessionHead,
    SessionView,
    SignInRequest,
    TokenRequest,
    TokenView,
)
from .service import HOW, SESSION_S, AccessService

Anybody = Annotated[Principal, needs()]
AsViewer = Annotated[Principal, needs(Role.VIEWER)]
AsAdmin = Annotated[Principal, needs(Role.ADMIN)]


def access_routes(access: AccessService) -> APIRouter:
    """The routes of access."""
    router = APIRouter(prefix=API, tags=["access"])
    _add_session(router, access)
    _add_sessions(router, access)
    _add_tokens(router, access)
    return router


def _add_session(router: APIRouter, access: AccessService) -> None:
    @router.get("/health")
    def read_health(who: Anybody) -> HealthView:
        """Whether this planner acts; one that stands by answers 503."""
        return HealthView(status="ok", access=access.mode, version=version("loadmaster"), time=time.time())

    @router.get("/session")
    def read_session(who: Anybody, request: Request) -> SessionView:
        """Who asks, and what they may do; 401 where nobody has said who it is."""
        if not who.is_known and not who.is_free:
            raise UnauthenticatedError(f"nobody is signed in: {HOW}", access=access.mode.value, can=who.abilities())
        return _session_view(access, who, caller_of(request).cookie if who.session else "", None)

    @router.post("/session", status_code=201)
    def sign_in(who: Anybody, body: SignInRequest, request: Request, response: Response) -> SessionView:
        """Open a browser session with a one-time code or an API token; its cookie comes with the answer."""
        caller = caller_of(request)
        check_site(caller)
        opened = access.sign_in(caller, code=body.code, token=body.token)
        response.set_cookie(
            cookie_name(caller.host), opened.secret, max_age=int(SESSION_S), path="/", httponly=True, samesite="strict",
            secure=request.url.scheme == "https",
        )  # fmt: skip
        return _session_view(access, opened.principal, opened.secret, opened.expires_at)

    @router.delete("/session", status_code=204)
    def sign_out(who: Anybody, request: Request, response: Response) -> None:
        """End the session that the request comes with."""
        access.sign_out(who)
        response.delete_cookie(cookie_name(caller_of(request).host), path="/", httponly=True, samesite="strict")


def _add_sessions(router: APIRouter, access: AccessService) -> None:
    @router.get("/sessions")
    def list_sessions(who: AsViewer) -> list[SessionHead]:
        """One's own browser sessions, newest first; everybody's for an admin."""
        return [_session_head(session, who) for session in access.sessions(who)]

    @router.delete("/sessions/{session}", status_code=204)
    def end_session(who: AsViewer, session: str) -> None:
        """Sign a browser out: one's own, anybody's as an admin."""
        access.end_session(session, who)


def _add_tokens(router: APIRouter, access: AccessService) -> None:
    @router.get("/tokens")
    def list_tokens(who: AsAdmin) -> list[TokenView]:
        """All tokens, oldest first, revoked ones too; never their secrets."""
        return [_token_view(token) for token in access.tokens()]

    @router.post("/tokens", status_code=201)
    def create_token(who: AsAdmin, body: TokenRequest) -> NewTokenView:
        """Hand out a token; this answer alone has its secret."""
        secret, token = access.create_token(body.name, body.roles, by=who.name, expires_in_s=body.expires_in_s)
        return NewTokenView(token=secret, **dict(_token_view(token)))

    @router.delete("/tokens/{token}")
    def revoke_token(who: AsAdmin, token: str) -> TokenView:
        """Let a token open nothing more, and end the sessions that were opened with it."""
        return _token_view(access.revoke_token(token, by=who.name))


def _session_view(access: AccessService, who: Principal, cookie: str, expires_at: float | None) -> SessionView:
    assert who.role is not None
    return SessionView(
        name=who.name,
        role=who.role,
        roles=[role for role in Role if role in who.roles],
        csrf=csrf_of(cookie) if cookie else "",
        can=who.abilities(),
        access=access.mode,
        expires_at=expires_at,
    )


def _session_head(session: SessionRecord, who: Principal) -> SessionHead:
    return SessionHead(
        id=session.id,
        name=session.grant.name,
        roles=[Role(role) for role in session.grant.roles],
        token=session.token,
        agent=session.agent,
        created_at=session.created_at,
        seen_at=session.seen_at,
        expires_at=session.expires_at,
        is_current=session.id == who.session,
    )


def _token_view(token: TokenRecord) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.grant.name,
        roles=[Role(role) for role in token.grant.roles],
        created_by=token.created_by,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        revoked_at=token.revoked_at,
        is_good=token.is_good(time.time()),
    )
