"""Actors and their leases."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.orm import Session

from loadmaster_flight.wire.control import LoaderRoute, RegisterRequest, Role

from .database import Database
from .models import ActorRow, LeaseRow
from .records import ActorRecord, GenerationKey, LeaseKind, LeaseRecord


class ActorRepository:
    """Reads and writes actors and leases. An actor that is deleted takes its leases with it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, request: RegisterRequest) -> ActorRecord:
        """Note a process; the same incarnation gets its record again, another one at its address is gone."""
        with self._database.writing() as session:
            row = session.scalar(select(ActorRow).where(ActorRow.address == request.address))
            if row is not None and (row.incarnation, row.role) == (request.incarnation, request.role):
                return _record(row)
            session.execute(delete(ActorRow).where(ActorRow.address == request.address))
            row = _new_row(request)
            session.add(row)
            session.flush()
            return _record(row)

    def remove(self, numbers: Sequence[int]) -> None:
        """Delete actors and with them their leases."""
        with self._database.writing() as session:
            session.execute(delete(ActorRow).where(ActorRow.number.in_(list(numbers))))

    def all(self) -> list[ActorRecord]:
        """The actors that have not been given up, in the order in which they came."""
        with self._database.reading() as session:
            return [_record(row) for row in session.scalars(select(ActorRow).order_by(ActorRow.number))]

    def leases(self) -> list[LeaseRecord]:
        """All leases, shadows too."""
        with self._database.reading() as session:
            return [_lease(row) for row in session.scalars(select(LeaseRow))]

    def num_leases(self) -> dict[tuple[LeaseKind, bool], int]:
        """How many leases there are of a kind, by whether who has them stands by."""
        kind, is_standby = LeaseRow.kind, LeaseRow.standby > 0
        counted = select(kind, is_standby, func.count()).group_by(kind, is_standby)
        with self._database.reading() as session:
            return {(LeaseKind(kind), bool(standby)): num for kind, standby, num in session.execute(counted)}

    def replace_leases(self, leases: Sequence[LeaseRecord]) -> bool:
        """Make these the leases; False when they were so before. Leases of actors that are gone are left out."""
        with self._database.writing() as session:
            alive = set(session.scalars(select(ActorRow.number)))
            wanted = {lease for lease in leases if lease.actor in alive}
            if wanted == {_lease(row) for row in session.scalars(select(LeaseRow))}:
                return False
            _write_leases(session, wanted)
        return True

    def partition_owners(self, run: str, source: int) -> dict[int, tuple[int, str]]:
        """Who measures a source: k -> (P, address) for the partitions that have an owner."""
        of_source = (LeaseRow.run == run, LeaseRow.source == source, *_owned(LeaseKind.PARTITION))
        statement = select(LeaseRow.slot, LeaseRow.slots, ActorRow.address).join(ActorRow).where(*of_source)
        with self._database.reading() as session:
            return {slot: (slots, address) for slot, slots, address in session.execute(statement)}

    def routes(self, run: str) -> list[LoaderRoute]:
        """Where the partitions of a run's sources are, one route an address."""
        of_run = (LeaseRow.run == run, *_owned(LeaseKind.PARTITION))
        columns = select(ActorRow.address, LeaseRow.source, LeaseRow.slot, LeaseRow.slots).join(ActorRow).where(*of_run)
        places: dict[str, list[list[int]]] = {}
        with self._database.reading() as session:
            for address, *triple in session.execute(columns.order_by(ActorRow.number, LeaseRow.source, LeaseRow.slot)):
                places.setdefault(address, []).append(triple)
        return [LoaderRoute(address=address, partitions=triples) for address, triples in places.items()]

    def constructor_of(self, key: GenerationKey, dp_rank: int) -> str | None:
        """Address of the constructor that serves a dp rank; None while there is none."""
        place = (LeaseRow.run == key.run, LeaseRow.stream == key.stream, LeaseRow.generation == key.generation)
        rank = (LeaseRow.slot == dp_rank, *_owned(LeaseKind.DP))
        with self._database.reading() as session:
            return session.scalar(select(ActorRow.address).join(LeaseRow).where(*place, *rank))

    def constructors(self, key: GenerationKey) -> dict[int, str]:
        """Address of the constructor of each dp rank that has one."""
        place = (LeaseRow.run == key.run, LeaseRow.stream == key.stream, LeaseRow.generation == key.generation)
        statement = select(LeaseRow.slot, ActorRow.address).join(ActorRow).where(*place, *_owned(LeaseKind.DP))
        with self._database.reading() as session:
            return {row.slot: row.address for row in session.execute(statement)}


def _owned(kind: LeaseKind) -> tuple[ColumnElement[bool], ...]:
    return LeaseRow.kind == kind, LeaseRow.standby == 0


def _write_leases(session: Session, leases: set[LeaseRecord]) -> None:
    session.execute(delete(LeaseRow))
    session.add_all(
        LeaseRow(
            run=lease.run,
            kind=lease.kind,
            stream=lease.stream,
            generation=lease.generation,
            source=lease.source,
            slot=lease.slot,
            standby=lease.standby,
            slots=lease.slots,
            actor=lease.actor,
        )
        for lease in leases
    )


def _new_row(request: RegisterRequest) -> ActorRow:
    return ActorRow(
        role=Role(request.role),
        address=request.address,
        incarnation=request.incarnation,
        pid=request.pid,
        capacity_bytes=request.capacity_bytes,
        registered_at=time.time(),
    )


def _record(row: ActorRow) -> ActorRecord:
    return ActorRecord(
        number=row.number,
        role=row.role,
        address=row.address,
        incarnation=row.incarnation,
        pid=row.pid,
        capacity_bytes=row.capacity_bytes,
    )


def _lease(row: LeaseRow) -> LeaseRecord:
    return LeaseRecord(
        run=row.run,
        kind=LeaseKind(row.kind),
        stream=row.stream,
        generation=row.generation,
        source=row.source,
        slot=row.slot,
        slots=row.slots,
        actor=row.actor,
        standby=row.standby,
    )
