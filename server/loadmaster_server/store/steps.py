"""The plan log in numbers, for people: summaries without bodies, and checkpoints without their states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select

from .database import Database
from .models import CheckpointRow, PlanRow
from .records import GenerationKey, StreamKey
from .revisions import ScheduledState
from .schedule_models import DraftRow, ScheduledRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """A step without its body: see `PlanRecord`."""

    step: int
    digest: str
    revision: int
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHead:
    """A checkpoint without its state. `written_at`: seconds since 1970; None where that was not kept."""

    generation: int
    step: int
    size_bytes: int
    written_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleHeads:
    """Numbers of the publishes of a run that wait or are suspended; and each draft's author and version."""

    waiting: list[int]
    drafts: dict[str, int]


class StepRepository:
    """Reads what people look at, without the large columns. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def summaries(self, key: GenerationKey, steps: Sequence[int]) -> list[StepSummary]:
        """Those of the given steps that are planned, in order."""
        if not steps:
            return []
        window = (PlanRow.step >= min(steps), PlanRow.step <= max(steps))
        columns = select(PlanRow.step, PlanRow.digest, PlanRow.revision, PlanRow.summary)
        wanted = set(steps)
        with self._database.reading() as session:
            rows = session.execute(columns.where(*_of(key), *window).order_by(PlanRow.step))
            return [
                StepSummary(step=step, digest=digest, revision=revision, summary=summary)
                for step, digest, revision, summary in rows
                if step in wanted
            ]

    def checkpoints(self, key: StreamKey, *, leave_out: int, limit: int) -> list[CheckpointHead]:
        """Checkpoints of all generations of a stream, newest first."""
        where = (CheckpointRow.run == key.run, CheckpointRow.stream == key.stream)
        row = CheckpointRow
        columns = select(row.generation, row.step, func.length(row.state), row.written_at).where(*where)
        order = (CheckpointRow.generation.desc(), CheckpointRow.step.desc())
        with self._database.reading() as session:
            rows = session.execute(columns.order_by(*order).offset(leave_out).limit(limit))
            return [
                CheckpointHead(generation=number, step=step, size_bytes=size, written_at=at)
                for number, step, size, at in rows
            ]

    def checkpoint_bytes(self, key: StreamKey) -> int:
        """Of all generations of a stream together."""
        where = (CheckpointRow.run == key.run, CheckpointRow.stream == key.stream)
        with self._database.reading() as session:
            return session.scalar(select(func.sum(func.length(CheckpointRow.state))).where(*where)) or 0

    def schedule_heads(self, run: str) -> ScheduleHeads:
        """What is about to change of a run's schedule."""
        open_states = (ScheduledState.PENDING, ScheduledState.SUSPENDED)
        waiting = select(ScheduledRow.number).where(ScheduledRow.run == run, ScheduledRow.state.in_(open_states))
        drafts = select(DraftRow.author, DraftRow.version).where(DraftRow.run == run).order_by(DraftRow.author)
        with self._database.reading() as session:
            numbers = list(session.scalars(waiting.order_by(ScheduledRow.number)))
            versions = {row.author: row.version for row in session.execute(drafts)}
        return ScheduleHeads(waiting=numbers, drafts=versions)


def _of(key: GenerationKey) -> tuple[ColumnElement[bool], ...]:
    return PlanRow.run == key.run, PlanRow.stream == key.stream, PlanRow.generation == key.generation
