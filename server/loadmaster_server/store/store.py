"""The store as one object: open it, and everything that is true is behind its repositories."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy.orm import Session

from .access import AccessRepository
from .actors import ActorRepository
from .archive import ArchiveRepository
from .audit import AuditRepository
from .bulletin import Bulletin
from .database import Database
from .drafts import DraftRepository
from .generations import GenerationRepository
from .migration import upgrade
from .models import FactRow
from .plans import PlanRepository
from .runs import RunRepository
from .schedules import ScheduleRepository
from .segments import SegmentStorage
from .verdicts import VerdictRepository

TICKET_KEY = "ticket_key"


class Store:
    """SQL behind repositories, and a bulletin that wakes who waits for a change. Any thread may use it.

    Args:
        url: SQLAlchemy URL. The schema is brought up to date first.
        storage: Folder or URI of the files that bodies of old plans are moved to; needed once any are moved.
        fence: Called first in each transaction that writes; what it raises ends the transaction.
    """

    def __init__(self, url: str, *, storage: str = "", fence: Callable[[Session], None] | None = None) -> None:
        upgrade(url)
        self.database = Database(url, fence=fence)
        self.runs = RunRepository(self.database)
        self.generations = GenerationRepository(self.database)
        self.actors = ActorRepository(self.database)
        segments = SegmentStorage(storage)
        self.plans = PlanRepository(self.database, segments)
        self.archive = ArchiveRepository(self.database, segments)
        self.verdicts = VerdictRepository(self.database)
        self.schedules = ScheduleRepository(self.database)
        self.drafts = DraftRepository(self.database)
        self.audit = AuditRepository(self.database)
        self.access = AccessRepository(self.database)
        self.bulletin = Bulletin()
        try:
            self.ticket_key = self._ticket_key()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all waits and close the connections. Idempotent."""
        self.bulletin.close()
        self.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ticket_key(self) -> bytes:
        with self.database.writing() as session:
            row = session.get(FactRow, TICKET_KEY)
            if row is None:
                row = FactRow(name=TICKET_KEY, value=secrets.token_bytes(32))
                session.add(row)
            return row.value
