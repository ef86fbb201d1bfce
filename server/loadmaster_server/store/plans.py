"""The plan log, the planner's checkpoints, and the verdict journal."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, Select, func, insert, select
from sqlalchemy.orm import Session

from loadmaster_flight.spec.run import TRAIN
from loadmaster_flight.wire.errors import GoneError, InternalError, NotFoundError
from loadmaster_flight.wire.step_plan import decode_plans, plans_from_bytes, plans_to_bytes

from .database import Database
from .generations import lock_run
from .intervals import pieces_of
from .models import CheckpointRow, GenerationRow, PlanRow, SegmentRow, VerdictRow
from .records import (
    GenerationKey,
    GenerationRecord,
    GenerationState,
    PlannedStep,
    PlanRecord,
    StepMembership,
    StreamKey,
    VerdictKind,
    VerdictRecord,
)
from .segments import Segment, SegmentStorage
from .superseding import check_in_force


class PlanRepository:
    """Reads and writes the plan log.

    Args:
        database: Has the log.
        storage: Has the bodies that were moved to segment files.
    """

    def __init__(self, database: Database, storage: SegmentStorage) -> None:
        self._database, self._storage = database, storage

    def commit(
        self, key: GenerationKey, plan: PlanRecord, *, checkpoint: bytes | None, verdicts: Sequence[VerdictRecord] = ()
    ) -> None:
        """Append the next step: see `commit_all`."""
        self.commit_all(key, [PlannedStep(plan=plan, checkpoint=checkpoint, verdicts=verdicts)])

    def commit_all(self, key: GenerationKey, steps: Sequence[PlannedStep]) -> None:
        """Append the next steps, with what they rest on, in one transaction.

        Args:
            key: Generation whose next steps they are. Those that it replays are bound at once.
            steps: At least one, in order, the new ones under one revision. Of their verdicts those journaled before
                are passed over.

        Raises:
            GoneError: The generation was fenced meanwhile; nothing is written.
            SupersededError: One of them is another revision's meanwhile, or a publish waits for it; nothing is written.
        """
        plans = [step.plan for step in steps]
        with self._database.writing() as session:
            lock_run(session, key.run)
            generation = _plannable(session, key, plans)
            self._journal(session, key.run, [verdict for step in steps for verdict in step.verdicts])
            session.execute(insert(PlanRow), [_place(key) | _columns(plan) for plan in plans])
            session.add_all(_checkpoints(key, steps))
            generation.planned = plans[-1].step + 1
            generation.bound = max(generation.bound, min(generation.planned, generation.replay_until or 0))
            if plans[-1].is_final:
                generation.end_step = generation.planned

    def read(self, key: GenerationKey, first: int, last: int) -> list[PlanRecord]:
        """The planned steps in [first, last), in order, from SQL or from segment files.

        Raises:
            GoneError: A body is not held any more; names its step.
            UnavailableError: The storage of the segments cannot be read now.
        """
        with self._database.reading() as session:
            rows = list(session.scalars(_steps(key, first, last)))
            segments = _segments(session, {row.segment for row in rows if row.body is None})
        bodies = self._moved_bodies(rows, segments)
        return [_record(row, row.body if row.body is not None else _held(bodies, key, row.step)) for row in rows]

    def memberships(self, key: GenerationKey, first: int, last: int) -> list[StepMembership]:
        """Which pieces the planned steps in [first, last) have, in order; stays when a body is not held any more."""
        with self._database.reading() as session:
            rows = list(session.scalars(_steps(key, first, last)))
        return [_membership(row) for row in rows]

    def heads(self, key: GenerationKey, first: int, last: int) -> list[PlanRecord]:
        """The planned steps in [first, last), in order, each with an empty body: this stays as `memberships` do."""
        with self._database.reading() as session:
            return [_record(row, b"") for row in session.scalars(_steps(key, first, last))]

    def _moved_bodies(self, rows: Sequence[PlanRow], segments: Mapping[int, Segment]) -> dict[int, bytes]:
        """Step -> body of those rows that have none of their own, as far as it is held."""
        steps: defaultdict[int, list[int]] = defaultdict(list)
        for row in rows:
            if row.body is None and row.segment is not None and row.segment in segments:
                steps[row.segment].append(row.step)
        bodies: dict[int, bytes] = {}
        for number, wanted in steps.items():
            batches = self._storage.read(segments[number], wanted[0], wanted[-1] + 1)
            bodies |= {step: plans_to_bytes(decode_plans(batch)) for step, batch in zip(wanted, batches, strict=True)}
        return bodies

    def digests(self, key: GenerationKey, first: int, last: int) -> dict[int, str]:
        """Step -> digest of the planned steps in [first, last)."""
        window = (PlanRow.step >= first, PlanRow.step < last)
        with self._database.reading() as session:
            rows = session.execute(select(PlanRow.step, PlanRow.digest).where(*_is(PlanRow, key), *window))
            return {row.step: row.digest for row in rows}

    def lineage_summary(self, generation: GenerationRecord, step: int) -> dict[str, Any] | None:
        """Summary of a step as it was trained: from the generation, or from the parent where it began later."""
        run, stream, number = generation.key.run, generation.key.stream, generation.key.generation
        first_step, parent = generation.first_step, generation.parent
        with self._database.reading() as session:
            while step < first_step and parent >= 0:
                row = session.get_one(GenerationRow, (run, stream, parent))
                number, first_step, parent = row.generation, row.first_step, row.parent
            where = (PlanRow.run == run, PlanRow.stream == stream, PlanRow.generation == number, PlanRow.step == step)
            return session.scalar(select(PlanRow.summary).where(*where))  # without the body

    def checkpoint(self, key: GenerationKey, at_most: int) -> tuple[int, bytes] | None:
        """The newest checkpoint of a generation at or before a step: (step, state)."""
        statement = select(CheckpointRow).where(*_is(CheckpointRow, key), CheckpointRow.step <= at_most)
        with self._database.reading() as session:
            row = session.scalar(statement.order_by(CheckpointRow.step.desc()).limit(1))
        return None if row is None else (row.step, row.state)

    def journal(self, run: str, verdicts: Sequence[VerdictRecord]) -> None:
        """Write verdicts down; those that are there already are passed over."""
        with self._database.writing() as session:
            self._journal(session, run, verdicts)

    def num_verdicts(self, run: str) -> int:
        """How many samples of a run have a verdict."""
        with self._database.reading() as session:
            return session.scalar(select(func.count()).select_from(VerdictRow).where(VerdictRow.run == run)) or 0

    def num_masked(self, key: StreamKey, step: int) -> int:
        """How many samples of a step are served without loss because their content cannot be used."""
        of_step = (VerdictRow.run == key.run, VerdictRow.stream == key.stream, VerdictRow.step == step)
        statement = select(func.count()).select_from(VerdictRow).where(*of_step, VerdictRow.kind == VerdictKind.MASKED)
        with self._database.reading() as session:
            return session.scalar(statement) or 0

    def _journal(self, session: Session, run: str, verdicts: Sequence[VerdictRecord]) -> None:
        self._database.insert_new(session, VerdictRow, [{"run": run, **asdict(verdict)} for verdict in verdicts])


def _plannable(session: Session, key: GenerationKey, plans: Sequence[PlanRecord]) -> GenerationRow:
    step = plans[0].step
    assert [plan.step for plan in plans] == list(range(step, step + len(plans)))
    row = session.get(GenerationRow, (key.run, key.stream, key.generation), with_for_update=True)
    if row is None:
        raise NotFoundError(f"there is no {key}")
    if row.state == GenerationState.FENCED:
        raise GoneError(f"{key} was replaced by a newer one: step {step} is not planned in it")
    new = [plan for plan in plans if plan.step >= (row.replay_until or 0)]
    if key.stream == TRAIN and new:
        check_in_force(session, key, new[0].revision, first=new[0].step, last=new[-1].step)
    if row.planned != step:
        raise InternalError(f"{key}: step {step} was planned, but the next one to plan is {row.planned}")
    return row


def _checkpoints(key: GenerationKey, steps: Sequence[PlannedStep]) -> list[CheckpointRow]:
    return [
        CheckpointRow(**_place(key), step=step.plan.step + 1, written_at=time.time(), state=step.checkpoint)
        for step in steps
        if step.checkpoint is not None
    ]


def _place(key: GenerationKey) -> dict[str, str | int]:
    return {"run": key.run, "stream": key.stream, "generation": key.generation}


def _is(table: type[PlanRow] | type[CheckpointRow], key: GenerationKey) -> tuple[ColumnElement[bool], ...]:
    return table.run == key.run, table.stream == key.stream, table.generation == key.generation


def _columns(plan: PlanRecord) -> dict[str, Any]:
    """Its fields as they are: `asdict` would copy a summary of hundreds of sources number by number."""
    return {field.name: getattr(plan, field.name) for field in fields(plan)}


def _steps(key: GenerationKey, first: int, last: int) -> Select[PlanRow]:
    window = (PlanRow.step >= first, PlanRow.step < last)
    return select(PlanRow).where(*_is(PlanRow, key), *window).order_by(PlanRow.step)


def _segments(session: Session, numbers: set[int | None]) -> dict[int, Segment]:
    if not numbers:
        return {}
    return {
        row.number: Segment(path=row.path, first_step=row.first_step, last_step=row.last_step)
        for row in session.scalars(select(SegmentRow).where(SegmentRow.number.in_(numbers)))
    }


def _held(bodies: Mapping[int, bytes], key: GenerationKey, step: int) -> bytes:
    if step not in bodies:
        raise GoneError(f"the plan of step {step} of {key} is not held any more: only what it had in it is known")
    return bodies[step]


def _membership(row: PlanRow) -> StepMembership:
    if row.body is None:
        pieces, piece_U = pieces_of(row.intervals or b"")
    else:
        plan = plans_from_bytes(row.body)[0]
        pieces, piece_U = plan.pieces, plan.units.piece_U
    return StepMembership(step=row.step, digest=row.digest, pieces=pieces, piece_U=piece_U, revision=row.revision)


def _record(row: PlanRow, body: bytes) -> PlanRecord:
    return PlanRecord(
        step=row.step,
        digest=row.digest,
        revision=row.revision,
        is_final=row.is_final,
        body=body,
        summary=row.summary,
    )
