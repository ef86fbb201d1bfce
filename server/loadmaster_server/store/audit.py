"""The audit log: one row a change, written in the transaction of the change."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from .database import Database
from .revisions import AuditRecord
from .schedule_models import AuditRow


def note(
    session: Session, *, author: str, action: str, run: str, revision: int | None, message: str, **details: Any
) -> None:
    """Write a change down, as part of it."""
    session.add(
        AuditRow(
            at=time.time(),
            author=author,
            action=action,
            run=run,
            revision=revision,
            message=message,
            details=details,
        )
    )


class AuditRepository:
    """Reads the audit log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(
        self, *, run: str | None = None, author: str | None = None, action: str | None = None,
        before: int | None = None, limit: int = 100,
    ) -> list[AuditRecord]:  # fmt: skip
        """Newest first; `before` is the number of the last row of the page before."""
        wanted = {AuditRow.run: run, AuditRow.author: author, AuditRow.action: action}
        statement = select(AuditRow).where(*(column == value for column, value in wanted.items() if value is not None))
        if before is not None:
            statement = statement.where(AuditRow.number < before)
        with self._database.reading() as session:
            return [_record(row) for row in session.scalars(statement.order_by(AuditRow.number.desc()).limit(limit))]


def _record(row: AuditRow) -> AuditRecord:
    return AuditRecord(
        number=row.number,
        at=row.at,
        author=row.author,
        action=row.action,
        run=row.run,
        revision=row.revision,
        message=row.message,
        details=dict(row.details),
    )
