"""The plan log of a stream's trained lineage, read step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadmaster_flight.wire.errors import GoneError, LoadmasterError, NotFoundError
from loadmaster_flight.wire.step_plan import Pieces, StepPlan, plans_from_bytes

from ..plans.restoring import Span, lineage_spans
from ..store import GenerationKey, GenerationRecord, PlanRecord, Store, StreamKey

STEPS_AT_ONCE = 64
"""Steps that are read at once, and at least so many lie between two checkpoints that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Consecutive steps [first, last) of one generation.

    Attributes:
        records: In order, as far as they are there; with empty bodies where one of these is not held any more.
        pieces: Step -> its pieces, without bins, where bodies are empty.
    """

    span: Span
    first: int
    last: int
    records: list[PlanRecord]
    pieces: dict[int, Pieces]

    def pieces_of(self, record: PlanRecord) -> Pieces:
        """The pieces of a step; their bins are not known where its body is gone."""
        return self.pieces[record.step] if record.step in self.pieces else decoded(record).pieces


class LineageLog:
    """The steps of a stream as they were trained, from step 0 to what its newest generation has planned.

    Args:
        store: Has the log.
        key: The stream.
        generation: The generation whose lineage it is; by default the newest.

    Raises:
        NotFoundError: No such run, stream or generation, or nobody joined yet.
    """

    def __init__(self, store: Store, key: StreamKey, generation: int | None = None) -> None:
        self._store, self.key = store, key
        if generation is None:
            newest = store.generations.newest(key)
            if newest is None:
                raise NotFoundError(f"nobody has joined {key} yet, so it has no plan log")
        else:
            newest = store.generations.get(GenerationKey(run=key.run, stream=key.stream, generation=generation))
        self.newest: GenerationRecord = newest
        self.lineage = store.generations.lineage(newest.key)
        self._skips = {g.key.generation: g.skip for g in self.lineage if len(g.skip)}
        self.spans = [span for span in reversed(lineage_spans(self.lineage)) if span.first < span.last]

    @property
    def planned(self) -> int:
        return self.newest.planned

    @property
    def first(self) -> int:
        """The step that the lineage begins at: 0, unless its oldest generation began later."""
        return self.lineage[-1].first_step

    def words(self) -> list[str]:
        """The lineage in sentences, newest first."""
        return [
            f"generation {g.key.generation}"
            + (f" from step {g.first_step} of generation {g.parent}" if g.parent >= 0 else f" from step {g.first_step}")
            for g in self.lineage
        ]

    def windows(self, first: int = 0, last: int | None = None) -> Iterator[Window]:
        """The steps [first, last) by generation, STEPS_AT_ONCE at most at a time."""
        for span in self.spans:
            stop = span.last if last is None else min(span.last, last)
            for step in range(max(first, span.first), stop, STEPS_AT_ONCE):
                until = min(step + STEPS_AT_ONCE, stop)
                yield self._window(span, step, until)

    def _window(self, span: Span, first: int, last: int) -> Window:
        plans, pieces = self._store.plans, dict[int, Pieces]()
        try:
            records = plans.read(span.key, first, last)
        except GoneError:
            records = plans.heads(span.key, first, last)
            pieces = {found.step: found.pieces for found in plans.memberships(span.key, first, last)}
        return Window(span=span, first=first, last=last, records=records, pieces=pieces)

    def step(self, step: int) -> tuple[Span, PlanRecord, StepPlan]:
        """One step.

        Raises:
            NotFoundError: It is not planned.
        """
        for window in self.windows(step, step + 1):
            for record in window.records:
                return window.span, record, decoded(record)
        raise NotFoundError(f"step {step} of {self.key} is not planned: its steps are [{self.first}, {self.planned})")

    def is_left_out(self, step: int) -> bool:
        """Whether a resume left the step out on purpose."""
        span = next((span for span in self.spans if span.first <= step < span.last), None)
        skip = None if span is None else self._skips.get(span.key.generation)
        return skip is not None and skip.first <= step < skip.last


def decoded(record: PlanRecord) -> StepPlan:
    """The plan of a record.

    Raises:
        GoneError: Its body is not held any more.
    """
    if not record.body:
        raise GoneError(f"the plan of step {record.step} is not held any more: only what it had in it is known")
    return plans_from_bytes(record.body)[0]


def problem_of(record: PlanRecord) -> tuple[StepPlan | None, str]:
    """The plan of a record, and what is wrong with it: empty when it is what its digest says."""
    try:
        plan = decoded(record)
    except (LoadmasterError, IndexError) as error:
        return None, f"its body cannot be read: {error}"
    if plan.step != record.step:
        return plan, f"its body is that of step {plan.step}"
    if plan.with_digest().digest != record.digest:
        return plan, f"its body is not what its digest {record.digest[:16]} was taken of"
    if plan.is_final != record.is_final or plan.revision != record.revision:
        return plan, "its record and its body disagree on revision or end"
    return plan, ""
