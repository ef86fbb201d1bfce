"""The store as one object: open it, and everything that is true is behind its repositories."""

from __future__ import annotations

import secrets

from .actors import ActorRepository
from .bulletin import Bulletin
from .database import Database
from .generations import GenerationRepository
from .migration import upgrade
from .models import FactRow
from .plans import PlanRepository
from .runs import RunRepository
from .verdicts import VerdictRepository

TICKET_KEY = "ticket_key"


class Store:
    """SQL behind repositories, and a bulletin that wakes who waits for a change. Any thread may use it.

    Args:
        url: SQLAlchemy URL. The schema is brought up to date first.
    """

    def __init__(self, url: str) -> None:
        upgrade(url)
        self.database = Database(url)
        self.runs = RunRepository(self.database)
        self.generations = GenerationRepository(self.database)
        self.actors = ActorRepository(self.database)
        self.plans = PlanRepository(self.database)
        self.verdicts = VerdictRepository(self.database)
        self.bulletin = Bulletin()
        self.ticket_key = self._ticket_key()

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
