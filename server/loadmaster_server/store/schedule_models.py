"""Tables of drafts, of publishes that wait for their step, and of the audit log. Their rows never leave the store."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from .models import NAME, WORD, Base

AUTHOR = String(200)
NUMBER = BigInteger().with_variant(Integer, "sqlite")


class DraftRow(Base):
    """What an author is about to publish, and the revision that it was made from. `version` grows with every change."""

    __tablename__ = "drafts"
    run: Mapped[str] = mapped_column(NAME, ForeignKey("runs.name", ondelete="CASCADE"), primary_key=True)
    author: Mapped[str] = mapped_column(AUTHOR, primary_key=True)
    base: Mapped[int] = mapped_column(Integer)
    version: Mapped[int] = mapped_column(BigInteger)
    schedule: Mapped[dict[str, Any]] = mapped_column(JSON)
    updated_at: Mapped[float] = mapped_column(Float)


class ScheduledRow(Base):
    """A publish that becomes a revision when the planner comes to `at_step`, if its base is still the newest then."""

    __tablename__ = "scheduled_publishes"
    number: Mapped[int] = mapped_column(NUMBER, primary_key=True)
    run: Mapped[str] = mapped_column(NAME, ForeignKey("runs.name", ondelete="CASCADE"))
    base: Mapped[int] = mapped_column(Integer)
    at_step: Mapped[int] = mapped_column(BigInteger)
    author: Mapped[str] = mapped_column(AUTHOR)
    message: Mapped[str] = mapped_column(Text)
    schedule: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(WORD)
    reason: Mapped[str] = mapped_column(Text)
    revision: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[float] = mapped_column(Float)
    __table_args__ = (Index(None, "run", "state"),)


class AuditRow(Base):
    """Who did what, when. It outlives what it speaks of, so it refers to nothing."""

    __tablename__ = "audit_log"
    number: Mapped[int] = mapped_column(NUMBER, primary_key=True)
    at: Mapped[float] = mapped_column(Float)
    author: Mapped[str] = mapped_column(AUTHOR)
    action: Mapped[str] = mapped_column(WORD)
    run: Mapped[str] = mapped_column(NAME)
    revision: Mapped[int | None] = mapped_column(Integer)
    message: Mapped[str] = mapped_column(Text)
    details: Mapped[dict[str, Any]] = mapped_column(JSON)
    __table_args__ = (Index(None, "run", "number"),)
