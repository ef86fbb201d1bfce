"""Revisions of a run's schedule. Publishing serialises with planning and binding on the run's row."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from loadmaster_flight.spec import RunSpec, ScheduleSpec, schedule_of
from loadmaster_flight.wire.errors import ConflictError, LoadmasterError, NotFoundError, StaleError

from .audit import note
from .database import Database
from .drafts import close_draft
from .generations import lock_run
from .models import RevisionRow, RunRow
from .revisions import (
    PLANNER,
    Action,
    Change,
    Published,
    RevisionRecord,
    Room,
    ScheduledRecord,
    ScheduledState,
    Timeline,
)
from .schedule_models import ScheduledRow
from .superseding import next_due, room_of, supersede

Decide = Callable[[Timeline, int, Room], ScheduleSpec]
"""The schedule that is to be in force from a step on, checked; raises what forbids it."""


class ScheduleRepository:
    """Reads and writes revisions, and publishes that wait for their step. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._timelines: dict[str, Timeline] = {}
        self._lock = threading.Lock()

    def timeline(self, run: str) -> Timeline:
        """All revisions of a run.

        Raises:
            NotFoundError: There is no such run.
        """
        with self._lock:
            known = self._timelines.get(run)
        with self._database.reading() as session:
            newest = session.scalar(select(RunRow.revision).where(RunRow.name == run))
            if known is not None and known.newest.number == newest:  # the run's row is large
                return known
            return self._timeline(session, _run_row(session, run))

    def room(self, run: str) -> Room:
        """Which steps can still be changed."""
        with self._database.reading() as session:
            return room_of(session, run)

    def publish(self, run: str, change: Change, decide: Decide) -> Published:
        """Make a new revision, or schedule it where its step lies beyond what is planned; all in one transaction.

        Plans from the revision's step on that are not bound are taken back: the planner makes them anew. Publishes that
        wait for their step are suspended: their base has moved.

        Raises:
            StaleError: The newest revision is not `change.base`; carries its number.
            ConflictError: The step is bound, carries the first one that is not; or the stream ends before it.
            LoadmasterError: What `decide` raises.
        """
        with self._database.writing() as session:
            lock_run(session, run)
            row = _run_row(session, run)
            if change.base is not None and change.base != row.revision:
                text = f"the schedule of run {run!r} is at revision {row.revision} now, not at {change.base}"
                raise StaleError(text, current=row.revision)
            timeline, room = self._timeline(session, row), room_of(session, run)
            step = _step_of(room, change)
            schedule = decide(timeline, step, room)
            if change.closes_draft:
                close_draft(session, run, change.author)
            if step > room.planned:
                return Published(scheduled=_schedule(session, row, change, step, schedule))
            revision = _add_revision(session, row, change, step, schedule)
            num_plans = supersede(session, run, step)
            _note_revision(session, run, change.action, revision, plans=num_plans)
            _suspend_others(session, row)
            return Published(revision=revision)

    def next_due(self, run: str) -> int | None:
        """The first step that a publish waits for; None while none does."""
        with self._database.reading() as session:
            return next_due(session, run)

    def activate_due(self, run: str, step: int, check: Callable[[ScheduleSpec, int], None]) -> bool:
        """Before a step is planned: make revisions of the publishes that wait for it; whether any was due.

        Args:
            step: The next step to plan.
            check: Raises what forbids a schedule from a step on; then the publish is suspended.
        """
        due = (ScheduledRow.run == run, ScheduledRow.state == ScheduledState.PENDING, ScheduledRow.at_step <= step)
        with self._database.reading() as session:
            if session.scalar(select(ScheduledRow.number).where(*due).limit(1)) is None:
                return False
        with self._database.writing() as session:
            lock_run(session, run)
            row = _run_row(session, run)
            for waiting in session.scalars(select(ScheduledRow).where(*due).order_by(ScheduledRow.number)).all():
                _activate(session, row, waiting, check)
        return True

    def scheduled(self, run: str) -> list[ScheduledRecord]:
        """Publishes that wait for their step, or did, newest first."""
        statement = select(ScheduledRow).where(ScheduledRow.run == run).order_by(ScheduledRow.number.desc())
        with self._database.reading() as session:
            return [_scheduled_record(row) for row in session.scalars(statement)]

    def cancel(self, run: str, number: int, author: str) -> ScheduledRecord:
        """Take a scheduled publish back.

        Raises:
            NotFoundError: There is none of that number.
            ConflictError: It is a revision already, or cancelled.
        """
        with self._database.writing() as session:
            row = _waiting_row(session, run, number, ScheduledState.PENDING, ScheduledState.SUSPENDED)
            row.state, row.reason = ScheduledState.CANCELLED, f"cancelled by {author}"
            _note_waiting(session, row, Action.CANCELLED, author)
            return _scheduled_record(row)

    def retime(self, run: str, number: int, author: str, at_step: int) -> ScheduledRecord:
        """Let a pending publish wait for another step, which must not be planned yet.

        Raises:
            NotFoundError: There is none of that number.
            ConflictError: It does not wait any more, or the step is planned; carries the first one that is not.
        """
        with self._database.writing() as session:
            lock_run(session, run)
            row = _waiting_row(session, run, number, ScheduledState.PENDING)
            first_free = room_of(session, run).planned + 1
            if at_step < first_free:
                text = f"at_step must be a step that is not planned yet, from {first_free} on, got {at_step}"
                raise ConflictError(text, first_free=first_free)
            row.at_step = at_step
            _note_waiting(session, row, Action.RETIMED, author)
            return _scheduled_record(row)

    def _timeline(self, session: Session, run: RunRow) -> Timeline:
        """Revisions are immutable: each is read once."""
        with self._lock:
            known = self._timelines.get(run.name)
        if known is not None and known.newest.number == run.revision:
            return known
        before = () if known is None else known.revisions
        rows = select(RevisionRow).where(RevisionRow.run == run.name, RevisionRow.revision >= len(before))
        newer = session.scalars(rows.order_by(RevisionRow.revision))
        timeline = Timeline(revisions=(*before, *(_revision_record(row, run) for row in newer)))
        with self._lock:
            self._timelines[run.name] = timeline
        return timeline


def _run_row(session: Session, run: str) -> RunRow:
    row = session.get(RunRow, run)
    if row is None:
        raise NotFoundError(f"there is no run {run!r}")
    return row


def _step_of(room: Room, change: Change) -> int:
    """The step from which a change is in force.

    Raises:
        ConflictError: It is bound, or after the stream's end.
    """
    step = room.first_free if change.at_step is None else change.at_step
    if step < room.first_free:
        text = f"at_step must be a step that is not bound yet, from {room.first_free} on, got {step}"
        raise ConflictError(text, first_free=room.first_free)
    if room.end_step is not None and step >= room.end_step:
        text = f"the stream ends before step {room.end_step}: there is nothing to change from step {step} on"
        raise ConflictError(text, end_step=room.end_step)
    return step


def _add_revision(session: Session, run: RunRow, change: Change, step: int, schedule: ScheduleSpec) -> RevisionRecord:
    row = RevisionRow(
        run=run.name,
        revision=run.revision + 1,
        base=run.revision,
        from_step=step,
        author=change.author,
        message=change.message,
        schedule=schedule.model_dump(mode="json"),
        created_at=time.time(),
    )
    session.add(row)
    run.revision = row.revision
    return _revision_record(row, run)


def _note_revision(session: Session, run: str, action: Action, revision: RevisionRecord, **details: object) -> None:
    note(
        session,
        author=revision.author,
        action=action,
        run=run,
        revision=revision.number,
        message=revision.message,
        from_step=revision.from_step,
        base=revision.base,
        **details,
    )


def _schedule(session: Session, run: RunRow, change: Change, step: int, schedule: ScheduleSpec) -> ScheduledRecord:
    row = ScheduledRow(
        run=run.name,
        base=run.revision,
        at_step=step,
        author=change.author,
        message=change.message,
        schedule=schedule.model_dump(mode="json"),
        state=ScheduledState.PENDING,
        reason="",
        revision=None,
        created_at=time.time(),
    )
    session.add(row)
    session.flush()
    _note_waiting(session, row, Action.SCHEDULED, change.author)
    return _scheduled_record(row)


def _activate(session: Session, run: RunRow, row: ScheduledRow, check: Callable[[ScheduleSpec, int], None]) -> None:
    """Unless it may not be any more: what was suspended by an earlier one of the same step is not pending now."""
    if row.state != ScheduledState.PENDING:
        return
    schedule, room = ScheduleSpec.model_validate(row.schedule), room_of(session, run.name)
    change = Change(author=row.author, message=row.message, at_step=row.at_step)
    try:
        if row.base != run.revision:
            raise StaleError(_moved(row, run))
        step = _step_of(room, change)
        check(schedule, step)
    except LoadmasterError as error:
        _suspend(session, row, error.message)
        return
    revision = _add_revision(session, run, change, step, schedule)
    num_plans = supersede(session, run.name, step)
    row.state, row.revision = ScheduledState.ACTIVATED, revision.number
    _note_revision(session, run.name, Action.ACTIVATED, revision, scheduled=row.number, plans=num_plans)
    _suspend_others(session, run)


def _suspend_others(session: Session, run: RunRow) -> None:
    pending = (ScheduledRow.run == run.name, ScheduledRow.state == ScheduledState.PENDING)
    for row in session.scalars(select(ScheduledRow).where(*pending, ScheduledRow.base != run.revision)).all():
        _suspend(session, row, _moved(row, run))


def _moved(row: ScheduledRow, run: RunRow) -> str:
    return f"it was made from revision {row.base}, and the schedule is at revision {run.revision} now"


def _suspend(session: Session, row: ScheduledRow, reason: str) -> None:
    row.state, row.reason = ScheduledState.SUSPENDED, reason
    _note_waiting(session, row, Action.SUSPENDED, PLANNER)


def _note_waiting(session: Session, row: ScheduledRow, action: Action, author: str) -> None:
    note(
        session,
        author=author,
        action=action,
        run=row.run,
        revision=None,
        message=row.reason or row.message,
        scheduled=row.number,
        base=row.base,
        at_step=row.at_step,
    )


def _waiting_row(session: Session, run: str, number: int, *states: ScheduledState) -> ScheduledRow:
    row = session.get(ScheduledRow, number, with_for_update=True)
    if row is None or row.run != run:
        raise NotFoundError(f"run {run!r} has no scheduled publish {number}")
    if row.state not in states:
        raise ConflictError(f"scheduled publish {number} of run {run!r} must wait for its step, it is {row.state}")
    return row


def _revision_record(row: RevisionRow, run: RunRow) -> RevisionRecord:
    """Revision 0 is what the run was created with: read off its spec."""
    is_first = row.revision == 0
    schedule = schedule_of(RunSpec.model_validate(run.spec)) if is_first else ScheduleSpec.model_validate(row.schedule)
    return RevisionRecord(
        number=row.revision,
        base=row.base,
        from_step=row.from_step,
        author=row.author,
        message=row.message,
        schedule=schedule,
        created_at=row.created_at,
    )


def _scheduled_record(row: ScheduledRow) -> ScheduledRecord:
    return ScheduledRecord(
        number=row.number,
        base=row.base,
        at_step=row.at_step,
        author=row.author,
        message=row.message,
        schedule=ScheduleSpec.model_validate(row.schedule),
        state=ScheduledState(row.state),
        reason=row.reason,
        revision=row.revision,
        created_at=row.created_at,
    )
