"""API tokens, browser sessions and one-time codes. Secrets come here as hashes; each change is audited with it."""

from __future__ import annotations

import hmac
import time
from typing import Any, TypeVar

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from loadmaster_flight.wire.errors import NotFoundError, UnauthenticatedError

from .access_models import ApiTokenRow, BrowserSessionRow, SignInCodeRow
from .access_records import AccessAction, Grant, Key, SessionRecord, TokenRecord
from .audit import note
from .database import Database

Row = TypeVar("Row", ApiTokenRow, BrowserSessionRow, SignInCodeRow)


class AccessRepository:
    """Reads and writes who may do what. Any thread may use it, and other processes on the same database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_token(self, key: Key, grant: Grant, *, by: str, expires_at: float | None) -> TokenRecord:
        """Keep a new token."""
        with self._database.writing() as session:
            row = ApiTokenRow(
                id=key.id, secret_hash=key.hash, name=grant.name, roles=list(grant.roles), created_by=by,
                created_at=time.time(), expires_at=expires_at,
            )  # fmt: skip
            session.add(row)
            _note(session, AccessAction.TOKEN_CREATED, by, _text_of(row), token=row.id, expires_at=expires_at)
            return _token_record(row)

    def tokens(self) -> list[TokenRecord]:
        """All tokens, oldest first."""
        with self._database.reading() as session:
            rows = session.scalars(select(ApiTokenRow).order_by(ApiTokenRow.created_at, ApiTokenRow.id))
            return [_token_record(row) for row in rows]

    def find_token(self, key: Key) -> TokenRecord | None:
        """The token of that id and secret, whether it is still good or not."""
        with self._database.reading() as session:
            row = _matching(session, ApiTokenRow, key)
            return None if row is None else _token_record(row)

    def revoke_token(self, id_: str, *, by: str) -> TokenRecord:
        """Let a token and the sessions that were opened with it open nothing more; again is as good as once.

        Raises:
            NotFoundError: There is none of that id.
        """
        with self._database.writing() as session:
            row = session.get(ApiTokenRow, id_)
            if row is None:
                raise NotFoundError(f"there is no token {id_!r}")
            if row.revoked_at is None:
                row.revoked_at = time.time()
                session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.token == id_))
                _note(session, AccessAction.TOKEN_REVOKED, by, _text_of(row), token=row.id)
            return _token_record(row)

    def touch_token(self, id_: str, at: float) -> None:
        """Write down when a token was last used."""
        with self._database.writing() as session:
            if (row := session.get(ApiTokenRow, id_)) is not None:
                row.last_used_at = at

    def add_code(self, key: Key, grant: Grant, *, by: str, expires_at: float) -> None:
        """Keep a one-time code; those that have expired go."""
        with self._database.writing() as session:
            session.execute(delete(SignInCodeRow).where(SignInCodeRow.expires_at <= time.time()))
            row = SignInCodeRow(
                id=key.id, secret_hash=key.hash, name=grant.name, roles=list(grant.roles), expires_at=expires_at
            )
            session.add(row)
            _note(session, AccessAction.LINK_CREATED, by, _text_of(row), expires_at=expires_at)

    def take_code(self, key: Key) -> Grant | None:
        """Use a code up; None: there is none such, or not any more."""
        with self._database.writing() as session:
            row = _matching(session, SignInCodeRow, key)
            if row is None:
                return None
            session.delete(row)
            return _grant_of(row) if time.time() < row.expires_at else None

    def open_session(
        self, key: Key, grant: Grant, *, token: str | None, agent: str, address: str, expires_at: float
    ) -> SessionRecord:
        """Keep a new session; those that have expired go.

        Raises:
            UnauthenticatedError: The token that opened it is not good any more.
        """
        now = time.time()
        with self._database.writing() as session:
            session.execute(delete(BrowserSessionRow).where(BrowserSessionRow.expires_at <= now))
            if token is not None and not _token_record(session.get_one(ApiTokenRow, token)).is_good(now):
                raise UnauthenticatedError(f"token {token} was revoked meanwhile, or is too old: ask for another")
            row = BrowserSessionRow(
                id=key.id, secret_hash=key.hash, name=grant.name, roles=list(grant.roles), token=token,
                agent=agent[:200], created_at=now, seen_at=now, expires_at=expires_at,
            )  # fmt: skip
            session.add(row)
            _note(session, AccessAction.SIGNED_IN, row.name, _text_of(row), browser=row.id, address=address)
            return _session_record(row)

    def sessions(self, name: str | None = None) -> list[SessionRecord]:
        """Sessions that have not expired, of one name or of all, newest first."""
        statement = select(BrowserSessionRow).where(BrowserSessionRow.expires_at > time.time())
        if name is not None:
            statement = statement.where(BrowserSessionRow.name == name)
        with self._database.reading() as session:
            rows = session.scalars(statement.order_by(BrowserSessionRow.created_at.desc(), BrowserSessionRow.id))
            return [_session_record(row) for row in rows]

    def find_session(self, key: Key) -> SessionRecord | None:
        """The session of that id and secret, whether it is still good or not."""
        with self._database.reading() as session:
            row = _matching(session, BrowserSessionRow, key)
            return None if row is None else _session_record(row)

    def touch_session(self, id_: str, at: float) -> None:
        """Write down when a session was last used."""
        with self._database.writing() as session:
            if (row := session.get(BrowserSessionRow, id_)) is not None:
                row.seen_at = at

    def end_session(self, id_: str, *, by: str) -> None:
        """Sign somebody out; none of that id is as good."""
        with self._database.writing() as session:
            row = session.get(BrowserSessionRow, id_)
            if row is not None:
                session.delete(row)
                _note(session, AccessAction.SIGNED_OUT, by, _text_of(row), browser=row.id)

    def note_refusal(self, *, author: str, run: str, message: str, **details: Any) -> None:
        """Write down that somebody was refused."""
        with self._database.writing() as session:
            note(
                session, author=author, action=AccessAction.REFUSED, run=run, revision=None, message=message, **details
            )


def _matching(session: Session, table: type[Row], key: Key) -> Row | None:
    row = session.get(table, key.id)
    return row if row is not None and hmac.compare_digest(row.secret_hash, key.hash) else None


def _note(session: Session, action: AccessAction, author: str, message: str, **details: Any) -> None:
    note(session, author=author, action=action, run="", revision=None, message=message, **details)


def _text_of(row: ApiTokenRow | BrowserSessionRow | SignInCodeRow) -> str:
    return f"{row.name} as {', '.join(row.roles)}"


def _grant_of(row: ApiTokenRow | BrowserSessionRow | SignInCodeRow) -> Grant:
    return Grant(name=row.name, roles=tuple(row.roles))


def _token_record(row: ApiTokenRow) -> TokenRecord:
    return TokenRecord(
        id=row.id,
        grant=_grant_of(row),
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )


def _session_record(row: BrowserSessionRow) -> SessionRecord:
    return SessionRecord(
        id=row.id,
        grant=_grant_of(row),
        token=row.token,
        agent=row.agent,
        created_at=row.created_at,
        seen_at=row.seen_at,
        expires_at=row.expires_at,
    )
