"""Tables of who may do what: API tokens, browser sessions, one-time codes. Secrets are there as hashes only."""

from __future__ import annotations

from sqlalchemy import JSON, Float, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from .models import Base
from .schedule_models import AUTHOR

ID, HASH = String(32), LargeBinary(32)


class ApiTokenRow(Base):
    """A bearer token. Revoked ones stay, so that the audit log's names can be explained."""

    __tablename__ = "api_tokens"
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    secret_hash: Mapped[bytes] = mapped_column(HASH)
    name: Mapped[str] = mapped_column(AUTHOR)
    roles: Mapped[list[str]] = mapped_column(JSON)
    created_by: Mapped[str] = mapped_column(AUTHOR)
    created_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float | None] = mapped_column(Float)
    last_used_at: Mapped[float | None] = mapped_column(Float)
    revoked_at: Mapped[float | None] = mapped_column(Float)


class BrowserSessionRow(Base):
    """Somebody signed in with a browser. `token`: the API token that it was opened with, and ends with."""

    __tablename__ = "browser_sessions"
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    secret_hash: Mapped[bytes] = mapped_column(HASH)
    name: Mapped[str] = mapped_column(AUTHOR)
    roles: Mapped[list[str]] = mapped_column(JSON)
    token: Mapped[str | None] = mapped_column(ID)
    agent: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[float] = mapped_column(Float)
    seen_at: Mapped[float] = mapped_column(Float)
    expires_at: Mapped[float] = mapped_column(Float)
    __table_args__ = (Index(None, "token"),)


class SignInCodeRow(Base):
    """What a one-time sign-in link holds; deleted when it is used."""

    __tablename__ = "sign_in_codes"
    id: Mapped[str] = mapped_column(ID, primary_key=True)
    secret_hash: Mapped[bytes] = mapped_column(HASH)
    name: Mapped[str] = mapped_column(AUTHOR)
    roles: Mapped[list[str]] = mapped_column(JSON)
    expires_at: Mapped[float] = mapped_column(Float)
