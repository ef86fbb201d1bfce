"""The verdict journal, read back."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import ColumnElement, func, select

from .database import Database
from .models import VerdictRow
from .records import StreamKey, VerdictKind, VerdictRecord

Masked = tuple[int, int, int, int, int]
"""source, epoch, shard, block, row"""


class VerdictRepository:
    """Reads what was journaled; `PlanRepository` writes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def measured(self, key: StreamKey) -> list[VerdictRecord]:
        """The samples that a stream leaves out because of their content."""
        where = _of(key, VerdictKind.MEASURED)
        with self._database.reading() as session:
            return [_record(row) for row in session.scalars(select(VerdictRow).where(*where))]

    def left_out(self, key: StreamKey) -> list[tuple[VerdictRecord, int]]:
        """For each kind, source and verdict of a stream the last entry and how many there are."""
        groups = (VerdictRow.source, VerdictRow.kind, VerdictRow.verdict)
        where = (VerdictRow.run == key.run, VerdictRow.stream == key.stream)
        totals = select(func.max(VerdictRow.number).label("last"), func.count().label("count")).where(*where)
        grouped = totals.group_by(*groups).subquery()
        rows = select(VerdictRow, grouped.c.count).join(grouped, VerdictRow.number == grouped.c.last).order_by(*groups)
        with self._database.reading() as session:
            return [(_record(row), int(count)) for row, count in session.execute(rows)]

    def masked(self, key: StreamKey, first: int, last: int) -> dict[int, tuple[Masked, ...]]:
        """Step -> the samples that are served in it without loss, of the steps in [first, last) that have any."""
        window = (VerdictRow.step >= first, VerdictRow.step < last)
        statement = select(VerdictRow).where(*_of(key, VerdictKind.MASKED), *window).order_by(VerdictRow.number)
        found: defaultdict[int, list[Masked]] = defaultdict(list)
        with self._database.reading() as session:
            for row in session.scalars(statement):
                found[row.step].append((row.source, row.epoch, row.shard, row.block, row.row))
        return {step: tuple(samples) for step, samples in found.items()}

    def masked_reasons(self, key: StreamKey, step: int) -> dict[Masked, str]:
        """The samples of a step that are served without loss, and why."""
        statement = select(VerdictRow).where(*_of(key, VerdictKind.MASKED), VerdictRow.step == step)
        with self._database.reading() as session:
            rows = session.scalars(statement)
            return {(row.source, row.epoch, row.shard, row.block, row.row): row.reason for row in rows}

    def left_out_by_block(self, key: StreamKey) -> dict[tuple[int, int, int], list[int]]:
        """(source, shard, block) -> per row that the stream leaves out, for content or length, its first epoch."""
        columns = select(VerdictRow.source, VerdictRow.shard, VerdictRow.block, VerdictRow.epoch)
        where = (VerdictRow.run == key.run, VerdictRow.stream == key.stream, VerdictRow.kind != VerdictKind.MASKED)
        found: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        with self._database.reading() as session:
            for row in session.execute(columns.where(*where)):
                found[row.source, row.shard, row.block].append(row.epoch)
        return dict(found)

    def of_sample(self, key: StreamKey, *, source: int, shard: int, block: int, row: int) -> list[VerdictRecord]:
        """All that the journal says of a sample in a stream, oldest first."""
        place = (VerdictRow.source == source, VerdictRow.shard == shard, VerdictRow.block == block)
        stream = (VerdictRow.run == key.run, VerdictRow.stream == key.stream)
        statement = select(VerdictRow).where(*stream, *place, VerdictRow.row == row).order_by(VerdictRow.number)
        with self._database.reading() as session:
            return [_record(found) for found in session.scalars(statement)]


def _of(key: StreamKey, kind: VerdictKind) -> tuple[ColumnElement[bool], ...]:
    return VerdictRow.run == key.run, VerdictRow.stream == key.stream, VerdictRow.kind == kind


def _record(row: VerdictRow) -> VerdictRecord:
    return VerdictRecord(
        kind=VerdictKind(row.kind),
        stream=row.stream,
        step=row.step,
        source=row.source,
        epoch=row.epoch,
        shard=row.shard,
        block=row.block,
        row=row.row,
        verdict=row.verdict,
        reason=row.reason,
    )
