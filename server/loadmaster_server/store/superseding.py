"""What a change of the schedule does to plans: those that are not bound go, from its step on."""

from __future__ import annotations

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from loadmaster_flight.spec.run import TRAIN

from .models import CheckpointRow, GenerationRow, PlanRow, RevisionRow, StreamRow
from .records import GenerationKey
from .revisions import Room, ScheduledState, SupersededError
from .schedule_models import ScheduledRow


def room_of(session: Session, run: str) -> Room:
    """Where the train stream's newest generation stands. What it replays of its parent counts as bound."""
    row = _newest(session, run)
    if row is None:
        return Room()
    first_free = max(row.bound, row.replay_until or 0)
    return Room(first_free=first_free, planned=max(row.planned, first_free), end_step=row.end_step, mesh=dict(row.mesh))


def supersede(session: Session, run: str, from_step: int) -> int:
    """Take back the plans of the train stream from a step on, which must not be bound; returns how many there were.

    The planner goes on from the newest checkpoint at or before that step.
    """
    row = _newest(session, run, is_locked=True)
    if row is None or row.planned <= from_step:
        return 0
    num_plans = row.planned - from_step
    for table, first in ((PlanRow, from_step), (CheckpointRow, from_step + 1)):
        of_generation = (table.run == run, table.stream == TRAIN, table.generation == row.generation)
        session.execute(delete(table).where(*of_generation, table.step >= first))
    row.planned = from_step
    if row.end_step is not None and row.end_step > from_step:
        row.end_step = None
    return num_plans


def revision_at(session: Session, run: str, step: int) -> int:
    """Number of the revision in force at a step: the newest of those that begin at or before it."""
    found = (RevisionRow.run == run, RevisionRow.from_step <= step)
    return session.scalar(select(func.max(RevisionRow.revision)).where(*found)) or 0


def check_in_force(session: Session, key: GenerationKey, revision: int, *, first: int, last: int) -> None:
    """Refuse new steps [first, last] of the train stream that were planned under a revision not in force at them.

    Raises:
        SupersededError: One of them has another revision by now, or will have: a publish waits for it.
    """
    for step in {first, last}:  # from step to step revisions only rise
        if revision_at(session, key.run, step) != revision:
            raise SupersededError(f"{key}: step {step} was planned under revision {revision}")
    if last > first and (due := next_due(session, key.run)) is not None and first < due <= last:
        raise SupersededError(f"{key}: step {due} was planned without the publish that waits for it")


def next_due(session: Session, run: str) -> int | None:
    """The first step that a publish waits for."""
    pending = (ScheduledRow.run == run, ScheduledRow.state == ScheduledState.PENDING)
    return session.scalar(select(func.min(ScheduledRow.at_step)).where(*pending))


def _newest(session: Session, run: str, *, is_locked: bool = False) -> GenerationRow | None:
    stream = session.get(StreamRow, (run, TRAIN))
    if stream is None or stream.generation < 0:
        return None
    return session.get(GenerationRow, (run, TRAIN, stream.generation), with_for_update=is_locked)
