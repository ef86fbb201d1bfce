"""Generations of streams, and the ranks that are their members."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import and_, func, select, update
from sqlalchemy.orm import Session

from loadmaster_flight.wire.errors import GoneError, NotFoundError
from loadmaster_flight.wire.skipping import Skip

from .audit import note
from .database import Database
from .models import GenerationRow, MemberRow, RunRow, StreamRow
from .records import GenerationKey, GenerationRecord, GenerationState, NewGeneration, StreamKey
from .replaying import copy_replayed
from .revisions import Action


class GenerationRepository:
    """Reads and writes generations. Bounds of steps only ever rise."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, key: StreamKey, new: NewGeneration) -> GenerationRecord:
        """Open the next generation of a stream and fence all older ones, in one transaction.

        What is replayed of a parent on the same mesh is in its log from the beginning, and bound: nothing need be
        planned before the ranks read it.
        """
        with self._database.writing() as session:
            lock_run(session, key.run)
            stream = _stream(session, key)
            _fence(session, key)
            row = _new_row(key, stream.generation + 1, new)
            session.add(row)
            session.flush()
            session.add_all(_members(row, new.nonces))
            copy_replayed(session, row)
            stream.generation = row.generation
            return _record(row)

    def get(self, key: GenerationKey) -> GenerationRecord:
        """One generation.

        Raises:
            NotFoundError: There is none of that number.
        """
        with self._database.reading() as session:
            row = session.get(GenerationRow, _primary(key))
        if row is None:
            raise NotFoundError(f"there is no {key}")
        return _record(row)

    def unfenced(self, key: GenerationKey) -> GenerationRecord:
        """One generation that is still its stream's newest.

        Raises:
            GoneError: A newer one took over, or is about to; names it, or why.
        """
        record = self.get(key)
        if record.state is GenerationState.FENCED and record.code == GoneError.code:
            raise GoneError(f"{key} is over: {record.reason}")
        if record.state is GenerationState.FENCED:
            newest = self.newest(key.stream_key)
            number = newest.key.generation if newest else -1
            raise GoneError(f"{key} was replaced by generation {number}: join again", generation=number)
        return record

    def newest(self, key: StreamKey) -> GenerationRecord | None:
        """The stream's newest generation; None before anyone joined.

        Raises:
            NotFoundError: The run has no such stream.
        """
        with self._database.reading() as session:
            stream = _stream(session, key)
            row = session.get(GenerationRow, (key.run, key.stream, stream.generation))
        return None if row is None else _record(row)

    def of_run(self, run: str) -> list[GenerationRecord]:
        """All generations of a run, fenced ones too, ordered by stream and number."""
        statement = select(GenerationRow).where(GenerationRow.run == run)
        with self._database.reading() as session:
            rows = session.scalars(statement.order_by(GenerationRow.stream, GenerationRow.generation))
            return [_record(row) for row in rows]

    def current(self) -> list[GenerationRecord]:
        """All generations that are not fenced, ordered by run, stream."""
        statement = select(GenerationRow).where(GenerationRow.state != GenerationState.FENCED)
        with self._database.reading() as session:
            rows = session.scalars(statement.order_by(GenerationRow.run, GenerationRow.stream))
            return [_record(row) for row in rows]

    def live(self) -> list[GenerationRecord]:
        """Those that are neither fenced nor read to their end, ordered by run, stream."""
        over = (GenerationState.FENCED, GenerationState.ENDED)
        statement = select(GenerationRow).where(GenerationRow.state.not_in(over))
        with self._database.reading() as session:
            rows = session.scalars(statement.order_by(GenerationRow.run, GenerationRow.stream))
            return [_record(row) for row in rows]

    def runs_in_use(self) -> set[str]:
        """Runs with a stream that is not read to its end; its newest generation may be fenced, the next to come."""
        is_newest = and_(GenerationRow.run == StreamRow.run, GenerationRow.stream == StreamRow.name)
        is_newest = and_(is_newest, GenerationRow.generation == StreamRow.generation)
        statement = select(StreamRow.run).join(GenerationRow, is_newest)
        with self._database.reading() as session:
            return set(session.scalars(statement.where(GenerationRow.state != GenerationState.ENDED)))

    def lineage(self, key: GenerationKey) -> list[GenerationRecord]:
        """The generation, its parent, and so on up to a fresh start."""
        chain = [self.get(key)]
        while chain[-1].parent >= 0:
            last = chain[-1].key
            chain.append(self.get(GenerationKey(run=last.run, stream=last.stream, generation=chain[-1].parent)))
        return chain

    def joined_as(self, key: StreamKey, rank: int, nonce: str) -> GenerationRecord | None:
        """The newest generation that this attempt of a rank is a member of."""
        member = (MemberRow.run == key.run, MemberRow.stream == key.stream)
        attempt = (MemberRow.rank == rank, MemberRow.nonce == nonce)
        with self._database.reading() as session:
            number = session.scalar(select(func.max(MemberRow.generation)).where(*member, *attempt))
        if number is None:
            return None
        return self.get(GenerationKey(run=key.run, stream=key.stream, generation=number))

    def see(self, key: GenerationKey, rank: int) -> None:
        """Note that a member was heard of."""
        with self._database.writing() as session:
            session.execute(
                update(MemberRow)
                .where(MemberRow.run == key.run, MemberRow.stream == key.stream)
                .where(MemberRow.generation == key.generation, MemberRow.rank == rank)
                .values(last_seen=time.time())
            )

    def acknowledge(self, key: GenerationKey, step: int) -> GenerationRecord:
        """Raise the common acknowledgement; a stream that is acknowledged to its end is over."""
        with self._database.writing() as session:
            row = _locked(session, key)
            row.acknowledged = max(row.acknowledged, min(step, row.bound))
            _end_if_acknowledged(row)
            return _record(row)

    def end(self, key: GenerationKey, step: int) -> None:
        """The stream ends before `step`, and nothing of it is left to plan."""
        with self._database.writing() as session:
            row = _locked(session, key)
            row.end_step = step
            _end_if_acknowledged(row)

    def bind(self, key: GenerationKey, through: int) -> GenerationRecord:
        """Raise the bound step, never beyond what is planned: from then on no edit can change those plans."""
        with self._database.writing() as session:
            row = _locked(session, key)
            row.bound = max(row.bound, min(through, row.planned))
            return _record(row)

    def fence(self, key: GenerationKey, reason: str) -> bool:
        """End an open generation before there is a newer one; False when it is not open any more."""
        with self._database.writing() as session:
            row = _locked(session, key)
            if row.state != GenerationState.OPEN:
                return False
            row.state, row.code, row.reason = GenerationState.FENCED, GoneError.code, reason
            return True

    def stop(self, key: GenerationKey, state: GenerationState, code: str, reason: str) -> None:
        """Pause or fail a generation; one that is fenced stays as it is."""
        with self._database.writing() as session:
            row = _locked(session, key)
            if row.state != GenerationState.FENCED:
                row.state, row.code, row.reason = state, code, reason

    def note(self, key: GenerationKey, reason: str) -> None:
        """Say what an open generation is waiting for; empty: nothing."""
        place = (GenerationRow.run == key.run, GenerationRow.stream == key.stream)
        with self._database.writing() as session:
            session.execute(
                update(GenerationRow)
                .where(*place, GenerationRow.generation == key.generation, GenerationRow.state == GenerationState.OPEN)
                .values(reason=reason)
            )

    def resume(self, run: str, *, by: str) -> list[GenerationKey]:
        """Open what is paused or failed of a run, in somebody's name."""
        stopped = GenerationRow.state.in_((GenerationState.PAUSED, GenerationState.FAILED))
        with self._database.writing() as session:
            rows = list(session.scalars(select(GenerationRow).where(GenerationRow.run == run, stopped)))
            for row in rows:
                place = {"stream": row.stream, "generation": row.generation, "was": row.state}
                note(session, author=by, action=Action.RESUMED, run=run, revision=None, message=row.reason, **place)
                row.state, row.code, row.reason = GenerationState.OPEN, "", ""
            return [_record(row).key for row in rows]


def lock_run(session: Session, run: str) -> None:
    """Serialise with everyone else who changes this run's plans. SQLite has one writer anyway."""
    session.execute(select(RunRow.name).where(RunRow.name == run).with_for_update())


def _locked(session: Session, key: GenerationKey) -> GenerationRow:
    row = session.get(GenerationRow, _primary(key), with_for_update=True)
    if row is None:
        raise NotFoundError(f"there is no {key}")
    return row


def _end_if_acknowledged(row: GenerationRow) -> None:
    if row.end_step is not None and row.acknowledged >= row.end_step and row.state == GenerationState.OPEN:
        row.state = GenerationState.ENDED


def _primary(key: GenerationKey) -> tuple[str, str, int]:
    return key.run, key.stream, key.generation


def _stream(session: Session, key: StreamKey) -> StreamRow:
    stream = session.get(StreamRow, (key.run, key.stream))
    if stream is None:
        raise NotFoundError(f"there is no stream {key}")
    return stream


def _fence(session: Session, key: StreamKey) -> None:
    of_stream = (GenerationRow.run == key.run, GenerationRow.stream == key.stream)
    session.execute(update(GenerationRow).where(*of_stream).values(state=GenerationState.FENCED))


def _new_row(key: StreamKey, number: int, new: NewGeneration) -> GenerationRow:
    return GenerationRow(
        run=key.run,
        stream=key.stream,
        generation=number,
        parent=new.parent,
        parent_step=new.first_step if new.parent >= 0 else 0,
        first_step=new.first_step,
        mesh=new.mesh,
        world_size=len(new.nonces),
        state=GenerationState.OPEN,
        code="",
        reason="",
        planned=new.first_step,
        bound=new.first_step,
        acknowledged=new.first_step,
        end_step=None,
        replay_until=new.replay_until,
        skip_first=new.skip.first,
        skip_last=new.skip.last,
        held_from=new.first_step,
        created_at=time.time(),
    )


def _members(row: GenerationRow, nonces: Sequence[str]) -> list[MemberRow]:
    place = {"run": row.run, "stream": row.stream, "generation": row.generation}
    now = time.time()
    return [MemberRow(**place, rank=rank, nonce=nonce, last_seen=now) for rank, nonce in enumerate(nonces)]


def _record(row: GenerationRow) -> GenerationRecord:
    return GenerationRecord(
        key=GenerationKey(run=row.run, stream=row.stream, generation=row.generation),
        parent=row.parent,
        parent_step=row.parent_step,
        first_step=row.first_step,
        mesh=dict(row.mesh),
        world_size=row.world_size,
        state=GenerationState(row.state),
        code=row.code,
        reason=row.reason,
        planned=row.planned,
        bound=row.bound,
        acknowledged=row.acknowledged,
        end_step=row.end_step,
        replay_until=row.replay_until,
        skip=Skip(first=row.skip_first, last=row.skip_last),
        held_from=row.held_from,
        opened_at=row.created_at,
    )
