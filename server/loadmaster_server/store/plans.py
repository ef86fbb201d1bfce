"""The plan log, the planner's checkpoints, and the verdict journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from loadmaster_flight.wire.errors import GoneError, InternalError, NotFoundError

from .database import Database
from .generations import lock_run
from .models import CheckpointRow, GenerationRow, PlanRow, VerdictRow
from .records import (
    GenerationKey,
    GenerationRecord,
    GenerationState,
    PlanRecord,
    StreamKey,
    VerdictKind,
    VerdictRecord,
)


class PlanRepository:
    """Reads and writes the plan log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def commit(
        self, key: GenerationKey, plan: PlanRecord, *, checkpoint: bytes | None, verdicts: Sequence[VerdictRecord] = ()
    ) -> None:
        """Append the next step, with what it rests on, in one transaction.

        Args:
            key: Generation whose next step it is. A step that it replays is bound at once.
            plan: The step.
            checkpoint: The planner's state after it, when this is a step to keep it at.
            verdicts: Samples that were left out on the way; those journaled before are passed over.

        Raises:
            GoneError: The generation was fenced meanwhile; nothing is written.
        """
        with self._database.writing() as session:
            lock_run(session, key.run)
            generation = _plannable(session, key, plan.step)
            self._journal(session, key.run, verdicts)
            session.add(PlanRow(**_place(key), **_columns(plan)))
            if checkpoint is not None:
                session.add(CheckpointRow(**_place(key), step=plan.step + 1, state=checkpoint))
            generation.planned = plan.step + 1
            if plan.step < (generation.replay_until or 0):
                generation.bound = max(generation.bound, plan.step + 1)
            if plan.is_final:
                generation.end_step = plan.step + 1

    def read(self, key: GenerationKey, first: int, last: int) -> list[PlanRecord]:
        """The planned steps in [first, last), in order."""
        window = (PlanRow.step >= first, PlanRow.step < last)
        statement = select(PlanRow).where(*_is(PlanRow, key), *window).order_by(PlanRow.step)
        with self._database.reading() as session:
            return [_record(row) for row in session.scalars(statement)]

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
            found = session.get(PlanRow, (run, stream, number, step))
            return None if found is None else dict(found.summary)

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


def _plannable(session: Session, key: GenerationKey, step: int) -> GenerationRow:
    row = session.get(GenerationRow, (key.run, key.stream, key.generation), with_for_update=True)
    if row is None:
        raise NotFoundError(f"there is no {key}")
    if row.state == GenerationState.FENCED:
        raise GoneError(f"{key} was replaced by a newer one: step {step} is not planned in it")
    if row.planned != step:
        raise InternalError(f"{key}: step {step} was planned, but the next one to plan is {row.planned}")
    return row


def _place(key: GenerationKey) -> dict[str, str | int]:
    return {"run": key.run, "stream": key.stream, "generation": key.generation}


def _is(table: type[PlanRow] | type[CheckpointRow], key: GenerationKey) -> tuple[ColumnElement[bool], ...]:
    return table.run == key.run, table.stream == key.stream, table.generation == key.generation


def _columns(plan: PlanRecord) -> dict[str, Any]:
    """Its fields as they are: `asdict` would copy a summary of hundreds of sources number by number."""
    return {field.name: getattr(plan, field.name) for field in fields(plan)}


def _record(row: PlanRow) -> PlanRecord:
    return PlanRecord(
        step=row.step,
        digest=row.digest,
        revision=row.revision,
        is_final=row.is_final,
        body=row.body or b"",
        summary=row.summary,
    )
