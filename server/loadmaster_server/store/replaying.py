"""A new generation's log as its parent had it: the steps that are served again bit for bit."""

from __future__ import annotations

from sqlalchemy import ColumnElement, insert, literal, select
from sqlalchemy.orm import Session

from .models import CheckpointRow, GenerationRow, PlanRow

MAX_STEPS = 4096
"""Of one copy; what lies beyond is planned again and compared."""


def copy_replayed(session: Session, row: GenerationRow) -> None:
    """Take over the parent's plans up to `row.replay_until` where the mesh is the same, and bind them.

    Checkpoints come along: a planner goes on from the last of them.
    """
    parent = session.get(GenerationRow, (row.run, row.stream, row.parent)) if row.parent >= 0 else None
    if parent is None or row.replay_until is None or parent.mesh != row.mesh:
        return
    until = min(row.replay_until, row.first_step + MAX_STEPS)
    for table, beyond in ((PlanRow, 0), (CheckpointRow, 1)):
        window = (table.step >= row.first_step + beyond, table.step < until + beyond)
        _copy(session, table, parent, row.generation, window)
    row.planned = row.bound = until
    if parent.end_step is not None and parent.end_step <= until:
        row.end_step = parent.end_step


def _copy(
    session: Session,
    table: type[PlanRow] | type[CheckpointRow],
    parent: GenerationRow,
    generation: int,
    window: tuple[ColumnElement[bool], ...],
) -> None:
    names = [column.name for column in table.__table__.columns]
    values = [literal(generation) if name == "generation" else getattr(table, name) for name in names]
    of_parent = (table.run == parent.run, table.stream == parent.stream, table.generation == parent.generation)
    session.execute(insert(table).from_select(names, select(*values).where(*of_parent, *window)))
