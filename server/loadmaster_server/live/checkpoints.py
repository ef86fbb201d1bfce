"""The planner's checkpoints of a stream: which there are, and from which it can go on."""

from __future__ import annotations

import time

from loadmaster_flight.wire.errors import BadRequestError

from ..plans.restoring import lineage_spans
from ..store import GenerationRecord, Store, StreamKey, Timeline
from ..store.steps import CheckpointHead, StepRepository
from .schemas import CheckpointLine, CheckpointRow, CheckpointsView

MAX_ROWS = 500


class CheckpointModel:
    """Reads checkpoints. Any thread may call it."""

    def __init__(self, store: Store, steps: StepRepository) -> None:
        self._store, self._steps = store, steps

    def read(self, key: StreamKey, *, before: int, limit: int) -> CheckpointsView:
        """A page of them, newest first, without the first `before`.

        Raises:
            NotFoundError: No such run or stream.
            BadRequestError: `limit` is too large.
        """
        if not 1 <= limit <= MAX_ROWS or before < 0:
            raise BadRequestError(f"limit must be in [1, {MAX_ROWS}] and before at least 0, got {limit} and {before}")
        newest = self._store.generations.newest(key)
        heads = self._steps.checkpoints(key, leave_out=before, limit=limit + 1)
        lineage = self._store.generations.lineage(newest.key) if newest else []
        timeline = self._store.schedules.timeline(key.run)
        return CheckpointsView(
            run=key.run,
            stream=key.stream,
            generation=newest.key.generation if newest else -1,
            at=round(time.time(), 3),
            rows=[_row(head, lineage, timeline) for head in heads[:limit]],
            next_before=before + limit if len(heads) > limit else None,
            held_from=newest.held_from if newest else 0,
            total_bytes=self._steps.checkpoint_bytes(key),
        )

    def newest(self, key: StreamKey) -> CheckpointLine | None:
        """The newest one; None where there is none."""
        head = next(iter(self._steps.checkpoints(key, leave_out=0, limit=1)), None)
        if head is None:
            return None
        return CheckpointLine(step=head.step, generation=head.generation, bytes=head.size_bytes, at=head.written_at)


def _row(head: CheckpointHead, lineage: list[GenerationRecord], timeline: Timeline) -> CheckpointRow:
    reason = _why_not(head, lineage)
    return CheckpointRow(
        step=head.step,
        generation=head.generation,
        bytes=head.size_bytes,
        at=head.written_at,
        revision=timeline.at(head.step).number,
        is_restorable=not reason,
        reason=reason,
    )


def _why_not(head: CheckpointHead, lineage: list[GenerationRecord]) -> str:
    """Why the stream cannot go on at a checkpoint's step as it was trained; empty: it can."""
    newest = lineage[0] if lineage else None
    span = next((span for span in lineage_spans(lineage) if span.key.generation == head.generation), None)
    if newest is None or span is None:
        return f"generation {head.generation} is not in the trained lineage"
    if head.step > span.last:
        return f"the stream left generation {head.generation} at step {span.last}"
    if head.step > newest.acknowledged:
        return f"not all ranks have come to it: they have acknowledged the steps before {newest.acknowledged}"
    if head.step < newest.held_from:
        return f"a stream can go on from step {newest.held_from} on: older plans are not held any more"
    return ""
