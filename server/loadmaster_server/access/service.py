"""Who asks, tokens, sessions and one-time sign-in links."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from loadmaster_flight.wire.errors import BadRequestError, ForbiddenError, NotFoundError, UnauthenticatedError

from ..store import AccessRepository, Grant, Key, SessionRecord, TokenRecord
from .attempts import Attempts
from .caller import Caller, caller_of, check_csrf, check_host, check_site
from .keys import Kind, key_of, new_secret
from .principal import NAME_PATTERN, RESERVED, UNKNOWN, AccessMode, Principal, Role
from .refusals import RefusalLog

CODE_S = 600.0
IDLE_S = 12 * 3600.0
SESSION_S = 7 * 86400.0
REMEMBER_S = 2.0
"""How long a revocation by another process (`loadmaster token revoke`) may go unnoticed."""
TOUCH_S = 60.0
MAX_REMEMBERED = 4096
_NAME = re.compile(NAME_PATTERN)
HOW = "sign in with a link of `loadmaster sign-in`, or set LOADMASTER_TOKEN to a token of `loadmaster token create`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A session that has just begun; `secret` goes into the browser's cookie and nowhere else."""

    secret: str
    principal: Principal
    expires_at: float


class AccessService:
    """Knows who asks and what they may do. Any thread may call it.

    Args:
        access: Where tokens and sessions are kept.
        mode: What somebody may do who has not said who they are.
    """

    def __init__(self, access: AccessRepository, mode: AccessMode) -> None:
        self._access, self.mode = access, mode
        self.refusals = RefusalLog(access)
        self._attempts = Attempts()
        self._remembered: dict[str, tuple[float, Principal]] = {}
        self._lock = threading.Lock()

    async def admit(self, request: Request, roles: Sequence[Role]) -> Principal:
        """Let a request through; called in the event loop.

        Raises:
            UnauthenticatedError, ForbiddenError: As `Needs` says.
        """
        caller = caller_of(request)
        who = await self._who(caller)
        request.state.principal = who
        self._check(caller, who)
        if not who.has_any(*roles):
            raise _refused(caller, who, roles)
        return who

    async def require_known(self, request: Request) -> None:
        """Refuse who may do nothing here, before what they send is read; called in the event loop.

        Raises:
            UnauthenticatedError: They may not.
        """
        caller = caller_of(request)
        if not (await self._who(caller)).roles:
            raise UnauthenticatedError(f"{caller.target} needs a name: {HOW}")

    async def _who(self, caller: Caller) -> Principal:
        who = self._recall(caller)
        return await run_in_threadpool(self._identify, caller) if who is None else who

    def create_token(
        self, name: str, roles: Sequence[Role], *, by: str, expires_in_s: float | None = None
    ) -> tuple[str, TokenRecord]:
        """A new bearer token: its secret, which is not told again, and what is kept of it."""
        grant, secret = grant_of(name, roles), new_secret(Kind.TOKEN)
        expires_at = None if expires_in_s is None else time.time() + expires_in_s
        return secret, self._access.create_token(_key(Kind.TOKEN, secret), grant, by=by, expires_at=expires_at)

    def tokens(self) -> list[TokenRecord]:
        """All tokens, oldest first, revoked ones too."""
        return self._access.tokens()

    def read_token(self, secret: str) -> TokenRecord:
        """What is kept of a token that opens something now.

        Raises:
            UnauthenticatedError: It opens nothing; says why.
        """
        return self._good_token(secret)

    def revoke_token(self, id_: str, *, by: str) -> TokenRecord:
        """Let a token open nothing more, and end the sessions that were opened with it."""
        try:
            return self._access.revoke_token(id_, by=by)
        finally:
            self._forget()

    def create_code(self, name: str, roles: Sequence[Role], *, by: str) -> str:
        """A code that signs somebody in once, within ten minutes."""
        grant, code = grant_of(name, roles), new_secret(Kind.CODE)
        self._access.add_code(_key(Kind.CODE, code), grant, by=by, expires_at=time.time() + CODE_S)
        return code

    def sign_in(self, caller: Caller, *, code: str | None = None, token: str | None = None) -> Opened:
        """Open a browser session with a one-time code or a token.

        Raises:
            UnauthenticatedError: The code was used, the token revoked, or either is too old or was never handed out.
            BusyError: Too many attempts have failed from where this one comes.
        """
        self._attempts.check(caller.address)
        try:
            return self._signed_in(caller, code, token)
        except UnauthenticatedError:
            self._attempts.note(caller.address)
            raise

    def _signed_in(self, caller: Caller, code: str | None, token: str | None) -> Opened:
        opened_with, expires_at = None, time.time() + SESSION_S
        if code is not None:
            grant = self._taken(code)
        else:
            record = self._good_token(token or "")
            grant, opened_with = record.grant, record.id
            expires_at = min(expires_at, record.expires_at or expires_at)
        secret = new_secret(Kind.SESSION)
        session = self._access.open_session(
            _key(Kind.SESSION, secret), grant, token=opened_with, agent=caller.agent, address=caller.address,
            expires_at=expires_at,
        )  # fmt: skip
        return Opened(secret=secret, principal=self._widened(_principal(grant, session.id)), expires_at=expires_at)

    def sign_out(self, who: Principal) -> None:
        """End the session that somebody came with; without any, nothing happens."""
        if who.session:
            self._end(who.session, who)

    def sessions(self, who: Principal) -> list[SessionRecord]:
        """Sessions that are open: one's own, of everybody for an admin."""
        if not who.is_known and not who.is_free:
            return []
        return self._access.sessions(None if who.has_any(Role.ADMIN) else who.name)

    def end_session(self, id_: str, who: Principal) -> None:
        """Sign somebody out.

        Raises:
            NotFoundError: There is no such session, or it is another's and one is no admin.
        """
        if id_ not in [session.id for session in self.sessions(who)]:
            raise NotFoundError(f"you have no session {id_!r}")
        self._end(id_, who)

    def _end(self, id_: str, who: Principal) -> None:
        try:
            self._access.end_session(id_, by=who.name)
        finally:
            self._forget()

    def _check(self, caller: Caller, who: Principal) -> None:
        if self.mode is AccessMode.LOCAL:
            check_host(caller)
        if not who.is_free:
            check_site(caller)
        if who.session:
            check_csrf(caller)

    def _recall(self, caller: Caller) -> Principal | None:
        if caller.is_unnamed:
            return UNKNOWN[self.mode]
        with self._lock:
            until_s, who = self._remembered.get(caller.bearer or caller.cookie, (0.0, None))
        return who if time.monotonic() < until_s else None

    def _identify(self, caller: Caller) -> Principal:
        who = self._by_token(caller.bearer) if caller.bearer else self._by_session(caller.cookie)
        if who is None:
            return UNKNOWN[self.mode]
        who = self._widened(who)
        with self._lock:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[caller.bearer or caller.cookie] = (time.monotonic() + REMEMBER_S, who)
        return who

    def _by_token(self, text: str) -> Principal:
        record, now = self._good_token(text), time.time()
        if now - (record.last_used_at or 0.0) > TOUCH_S:
            self._access.touch_token(record.id, now)
        return _principal(record.grant)

    def _by_session(self, text: str) -> Principal | None:
        """None: it is over; the browser has not noticed."""
        key, now = key_of(Kind.SESSION, text), time.time()
        record = self._access.find_session(key) if key else None
        if record is None or now >= min(record.expires_at, record.seen_at + IDLE_S):
            return None
        if now - record.seen_at > TOUCH_S:
            self._access.touch_session(record.id, now)
        return _principal(record.grant, record.id)

    def _good_token(self, text: str) -> TokenRecord:
        key = key_of(Kind.TOKEN, text)
        record = self._access.find_token(key) if key else None
        if record is None:
            raise UnauthenticatedError(
                "the token was never handed out by this planner: make one with `loadmaster token`"
            )
        if not record.is_good(time.time()):
            how = "has expired" if record.revoked_at is None else "was revoked"
            raise UnauthenticatedError(f"token {record.id} of {record.grant.name!r} {how}: {HOW}")
        return record

    def _taken(self, code: str) -> Grant:
        key = key_of(Kind.CODE, code)
        grant = self._access.take_code(key) if key else None
        if grant is None:
            raise UnauthenticatedError(
                "the sign-in link was used or is too old: make another with `loadmaster sign-in`"
            )
        return grant

    def _widened(self, who: Principal) -> Principal:
        """Saying who one is takes nothing away from what anybody may."""
        return who.with_roles(*UNKNOWN[self.mode].roles) if self.mode is AccessMode.LOCAL else who

    def _forget(self) -> None:
        with self._lock:
            self._remembered.clear()


def sign_in_link(url: str, code: str) -> str:
    """Where a browser signs in with a code. Nothing after the # ever leaves the browser, and so no log has it."""
    return f"{url}/sign-in#code={code}"


def grant_of(name: str, roles: Sequence[Role]) -> Grant:
    """A name with roles.

    Raises:
        BadRequestError: It is no name, or one that the audit log uses for itself; or there is no role.
    """
    if not _NAME.fullmatch(name):
        raise BadRequestError(
            f"name must be 1 to 200 characters without / and must not begin with a space, got {name!r}"
        )
    if name in RESERVED:
        raise BadRequestError(f"name must not be one of {', '.join(RESERVED)}, got {name!r}")
    if not roles:
        raise BadRequestError(f"roles must name at least one of {', '.join(Role)}")
    return Grant(name=name, roles=tuple(role.value for role in Role if role in roles))


def _key(kind: Kind, secret: str) -> Key:
    key = key_of(kind, secret)
    assert key is not None
    return key


def _principal(grant: Grant, session: str = "") -> Principal:
    return Principal(name=grant.name, roles=frozenset(map(Role, grant.roles)), session=session)


def _refused(caller: Caller, who: Principal, roles: Sequence[Role]) -> UnauthenticatedError | ForbiddenError:
    wanted = " or ".join(roles)
    details = {"needs": [role.value for role in roles]}
    if not who.is_known:
        return UnauthenticatedError(f"{caller.target} needs the role {wanted}: {HOW}", **details)
    return ForbiddenError(f"{caller.target} needs the role {wanted}; {who.name!r} is {who.role}", **details)
