"""Which planner acts: one row in SQL, renewed by its holder and checked inside every transaction that writes."""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from loadmaster_flight.wire.errors import UnavailableError

from .database import Database
from .models import PlannerLeaseRow

ROW = 0


class Seen(NamedTuple):
    """What changes whenever the holder renews its lease."""

    epoch: int
    beat: int


def acting_url(database: Database) -> str | None:
    """Address of the planner that acts on a database; None: none does, or its lease has run out."""
    with database.reading() as session:
        row = session.get(PlannerLeaseRow, ROW)
    return row.holder.partition(" ")[0] if row is not None and row.until > time.time() else None


class PlannerLease:
    """The right to act as the planner of a database. One thread acquires, renews and releases; any may call the rest.

    Clocks of different machines are never compared: a lease has lapsed when its row did not change for `lease_s` of
    the watcher's own clock. Who was held up and wakes up later is refused by `check`: the epoch has gone on.

    Args:
        database: Its writes are not fenced.
        holder: Name of this planner, for people.
        place: Something that only one living process can have at a time, and this one has; empty: nothing. Who has
            what a former holder had, need not wait: that one is dead.
        lease_s: How long a holder may be silent.
    """

    def __init__(self, database: Database, *, holder: str, place: str, lease_s: float) -> None:
        self._database, self._holder, self._place, self._lease_s = database, holder[:255], place, lease_s
        self._epoch: int | None = None
        self._until_s = 0.0
        self._seen: Seen | None = None
        self._seen_s = 0.0
        self.holder = ""

    @property
    def is_held(self) -> bool:
        """Whether we may act: the lease is ours and was renewed in time."""
        return self._epoch is not None and time.monotonic() < self._until_s

    def try_acquire(self) -> bool:
        """Take the lease if it is free, was given back, or has lapsed; `holder` says who has it otherwise."""
        now_s = time.monotonic()
        with self._database.reading() as session:
            row = session.get(PlannerLeaseRow, ROW)
        seen = None if row is None else Seen(row.epoch, row.beat)
        if row is not None:
            self.holder = row.holder
            if seen != self._seen:
                self._seen, self._seen_s = seen, now_s
            is_dead = bool(self._place) and row.place == self._place
            if row.until > 0 and not is_dead and now_s - self._seen_s < self._lease_s:
                return False
        return self._take(seen, now_s)

    def renew(self) -> bool:
        """Say that we are still there; False when the lease has gone to another planner: `holder` says to whom."""
        now_s = time.monotonic()
        with self._database.writing() as session:
            row = session.get_one(PlannerLeaseRow, ROW)
            self.holder = row.holder
            if row.epoch != self._epoch:
                self._epoch = None
                return False
            row.beat, row.until = row.beat + 1, time.time() + self._lease_s
        self._until_s = now_s + self._lease_s
        return True

    def release(self) -> None:
        """Give the lease back, so that nobody has to wait for it. Idempotent."""
        epoch, self._epoch = self._epoch, None
        if epoch is None:
            return
        with self._database.writing() as session:
            row = session.get_one(PlannerLeaseRow, ROW)
            if row.epoch == epoch:
                row.until = 0.0

    def check(self, session: Session) -> None:
        """The fence: call it inside each transaction that writes.

        Raises:
            UnavailableError: Another planner acts; nothing may be written.
        """
        found = session.execute(select(PlannerLeaseRow.epoch, PlannerLeaseRow.holder)).one()
        if found.epoch != self._epoch:
            raise UnavailableError(f"this planner has lost its lease to {found.holder}: nothing was written")

    def _take(self, seen: Seen | None, now_s: float) -> bool:
        with self._database.writing() as session:
            row = session.get(PlannerLeaseRow, ROW)
            if (None if row is None else Seen(row.epoch, row.beat)) != seen:
                return False  # somebody was faster
            if row is None:
                row = PlannerLeaseRow(number=ROW, epoch=0, beat=0)
                session.add(row)
            row.epoch, row.beat, row.holder, row.place = row.epoch + 1, 0, self._holder, self._place
            row.until = time.time() + self._lease_s
            epoch = row.epoch
        self._epoch, self._until_s, self.holder = epoch, now_s + self._lease_s, self._holder
        return True
