"""Moves bodies of old plans from SQL to segment files, thins checkpoints, and forgets what is too old."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from loadmaster_flight.wire.errors import UnavailableError

from .database import Database
from .intervals import intervals_of
from .models import CheckpointRow, GenerationRow, PlanRow, SegmentRow
from .records import GenerationKey, GenerationState, StreamKey
from .segments import SegmentStorage

READ_STEPS = 16
"""Bodies that are in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRange:
    """The steps [first, last) of a generation."""

    key: GenerationKey
    first: int
    last: int


class ArchiveRepository:
    """Decides nothing about what is old: see plans/retention.py. Any thread may call it.

    Args:
        database: Has the plan log.
        storage: Where segment files go.
    """

    def __init__(self, database: Database, storage: SegmentStorage) -> None:
        self._database, self._storage = database, storage

    def next_range(self, key: StreamKey, *, below: int, num_steps: int) -> StepRange | None:
        """The next steps of a stream that can be moved, all of them before `below`; None while there are too few.

        A generation that is over need not fill its last segment.
        """
        of_stream = (GenerationRow.run == key.run, GenerationRow.stream == key.stream, GenerationRow.first_step < below)
        with self._database.reading() as session:
            generations = session.scalars(select(GenerationRow).where(*of_stream).order_by(GenerationRow.generation))
            found = (_movable(session, row, below, num_steps) for row in generations)
            return next((part for part in found if part is not None), None)

    def move(self, part: StepRange) -> int:
        """Write the bodies of some steps to a file and drop them from SQL; returns the file's size in bytes.

        Killed halfway it leaves the bodies where they were, and a file that the next try writes again.

        Raises:
            UnavailableError: The storage cannot be written, or somebody else moves these steps.
        """
        key, intervals = part.key, dict[int, bytes]()
        name = f"{part.first:012}-{part.last:012}.arrow"
        path = f"{key.run}/{key.stream}/{key.generation:06}/{name}"
        size_bytes = self._storage.write(path, self._bodies(part, intervals))
        place = {"run": key.run, "stream": key.stream, "generation": key.generation}
        segment = place | {"first_step": part.first, "last_step": part.last, "path": path, "size_bytes": size_bytes}
        with self._database.writing() as session:
            row = SegmentRow(**segment, written_at=time.time())
            session.add(row)
            session.flush()
            moved = [
                place | {"step": step, "body": None, "intervals": packed, "segment": row.number}
                for step, packed in intervals.items()
            ]
            session.execute(update(PlanRow), moved)
        return size_bytes

    def thin(self, key: StreamKey, *, below: int, every: int) -> int:
        """Drop the checkpoints before `below` whose step `every` does not divide; returns how many."""
        where = (*_is(CheckpointRow, key), CheckpointRow.step < below, CheckpointRow.step % every != 0)
        return self._drop_checkpoints(where)

    def forget(self, key: StreamKey, *, below: int) -> int:
        """Drop the segments that end before `below`, and what only they need; returns how many.

        Digests, summaries and intervals stay. From `below` on everything can still be gone on from.
        """
        of_stream = (SegmentRow.run == key.run, SegmentRow.stream == key.stream, SegmentRow.last_step <= below)
        with self._database.reading() as session:
            paths = list(session.scalars(select(SegmentRow.path).where(*of_stream)))
        if not paths:
            return 0
        older = (*_is(GenerationRow, key), GenerationRow.held_from < below, GenerationRow.first_step < below)
        with self._database.writing() as session:
            session.execute(update(GenerationRow).where(*older).values(held_from=below))
            session.execute(delete(SegmentRow).where(SegmentRow.path.in_(paths)))
        self._drop_checkpoints((*_is(CheckpointRow, key), CheckpointRow.step < _last_base(below)))
        for path in paths:
            self._storage.delete(path)
        return len(paths)

    def sizes(self) -> dict[str, float]:
        """How many bodies, segments and checkpoints there are, and how many bytes they take."""
        plans = select(
            func.count(PlanRow.body), func.sum(func.length(PlanRow.body)), func.sum(func.length(PlanRow.intervals))
        )
        segments = select(func.count(SegmentRow.number), func.sum(SegmentRow.size_bytes))
        checkpoints = select(func.count(CheckpointRow.step), func.sum(func.length(CheckpointRow.state)))
        names = (
            *("plan_bodies", "plan_body_bytes", "plan_interval_bytes"),
            *("segments", "segment_bytes", "checkpoints", "checkpoint_bytes"),
        )
        with self._database.reading() as session:
            values = [*session.execute(plans).one(), *session.execute(segments).one()]
            values += session.execute(checkpoints).one()
        return {name: float(value or 0) for name, value in zip(names, values, strict=True)}

    def _bodies(self, part: StepRange, intervals: dict[int, bytes]) -> Iterator[pa.RecordBatch]:
        """One row of STEP_PLAN a step; notes its intervals on the way."""
        for first in range(part.first, part.last, READ_STEPS):
            window = (PlanRow.step >= first, PlanRow.step < min(first + READ_STEPS, part.last))
            statement = select(PlanRow.step, PlanRow.body).where(*_is(PlanRow, part.key), *window)
            with self._database.reading() as session:
                rows = session.execute(statement.order_by(PlanRow.step)).all()
            for step, body in rows:
                if body is None:
                    raise UnavailableError(f"step {step} of {part.key} was moved to a segment by somebody else")
                with pa.ipc.open_stream(body) as reader:
                    batch = reader.read_next_batch().replace_schema_metadata(None)
                intervals[step] = intervals_of(batch)
                yield batch

    def _drop_checkpoints(self, where: tuple[ColumnElement[bool], ...]) -> int:
        with self._database.reading() as session:
            num = session.scalar(select(func.count()).select_from(CheckpointRow).where(*where)) or 0
        if num:
            with self._database.writing() as session:
                session.execute(delete(CheckpointRow).where(*where))
        return num


def _movable(session: Session, row: GenerationRow, below: int, num_steps: int) -> StepRange | None:
    key = GenerationKey(run=row.run, stream=row.stream, generation=row.generation)
    of_segments = (SegmentRow.run == row.run, SegmentRow.stream == row.stream)
    newest = select(func.max(SegmentRow.last_step)).where(*of_segments, SegmentRow.generation == row.generation)
    start, end = session.scalar(newest) or row.first_step, min(below, row.planned)
    # Replayed steps may have come without a body: it is in a segment of the parent.
    there = (*_is(PlanRow, key), PlanRow.step >= start, PlanRow.step < end, PlanRow.body.is_not(None))
    first = session.scalar(select(PlanRow.step).where(*there).order_by(PlanRow.step).limit(1)) if start < end else None
    is_over = row.state == GenerationState.FENCED and row.planned <= below
    if first is None or (end - first < num_steps and not is_over):
        return None
    return StepRange(key=key, first=first, last=min(first + num_steps, end))


def _last_base(below: int) -> ColumnElement[int]:
    """Of each row's generation the newest checkpoint at or before `below`; null where there is none."""
    base = CheckpointRow.__table__.alias("base")
    same = [base.c[name] == getattr(CheckpointRow, name) for name in ("run", "stream", "generation")]
    return select(func.max(base.c.step)).where(*same, base.c.step <= below).correlate(CheckpointRow).scalar_subquery()


def _is(
    table: type[PlanRow] | type[CheckpointRow] | type[GenerationRow], key: GenerationKey | StreamKey
) -> tuple[ColumnElement[bool], ...]:
    of_stream = (table.run == key.run, table.stream == key.stream)
    return of_stream if isinstance(key, StreamKey) else (*of_stream, table.generation == key.generation)
