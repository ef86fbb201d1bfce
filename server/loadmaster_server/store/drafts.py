"""Drafts: one an author and run, kept until it is published or thrown away."""

from __future__ import annotations

import time

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from loadmaster_flight.spec import ScheduleSpec
from loadmaster_flight.wire.errors import NotFoundError, StaleError

from .database import Database
from .revisions import DraftRecord
from .schedule_models import DraftRow


class DraftRepository:
    """Reads and writes drafts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_run(self, run: str) -> list[DraftRecord]:
        """All drafts of a run, by author."""
        statement = select(DraftRow).where(DraftRow.run == run).order_by(DraftRow.author)
        with self._database.reading() as session:
            return [_record(row) for row in session.scalars(statement)]

    def get(self, run: str, author: str) -> DraftRecord:
        """An author's draft.

        Raises:
            NotFoundError: There is none.
        """
        with self._database.reading() as session:
            row = session.get(DraftRow, (run, author))
        if row is None:
            raise NotFoundError(f"{author!r} has no draft of run {run!r}")
        return _record(row)

    def save(
        self, run: str, author: str, *, base: int, schedule: ScheduleSpec, version: int | None = None
    ) -> DraftRecord:
        """Write a draft.

        Args:
            version: The version that it replaces, 0 for none; None: whatever is there.

        Raises:
            StaleError: Another version is there, say from another tab; carries its number.
        """
        with self._database.writing() as session:
            row = session.get(DraftRow, (run, author))
            found = _checked_version(row, author, version)
            if row is None:
                row = DraftRow(run=run, author=author)
                session.add(row)
            row.base, row.updated_at = base, time.time()
            row.version = max(found + 1, int(row.updated_at * 1000))
            row.schedule = schedule.model_dump(mode="json")
            return _record(row)

    def discard(self, run: str, author: str, *, version: int | None = None) -> None:
        """Throw a draft away; none is as good.

        Args:
            version: The version that is thrown away; None: whatever is there.

        Raises:
            StaleError: Another version is there; carries its number.
        """
        with self._database.writing() as session:
            row = session.get(DraftRow, (run, author))
            if row is not None:
                _checked_version(row, author, version)
            close_draft(session, run, author)


def close_draft(session: Session, run: str, author: str) -> None:
    """Throw a draft away as part of a change."""
    session.execute(delete(DraftRow).where(DraftRow.run == run, DraftRow.author == author))


def _checked_version(row: DraftRow | None, author: str, version: int | None) -> int:
    found = row.version if row else 0
    if version is not None and version != found:
        text = f"the draft of {author!r} has version {found}, not {version}: it was changed elsewhere"
        raise StaleError(text, version=found)
    return found


def _record(row: DraftRow) -> DraftRecord:
    return DraftRecord(
        author=row.author,
        base=row.base,
        version=row.version,
        schedule=ScheduleSpec.model_validate(row.schedule),
        updated_at=row.updated_at,
    )
