"""Brings a planner to where a generation goes on: from the best checkpoint of its lineage, planned forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from loadmaster_flight.wire.errors import DataError
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, StepPlan

from ..planning.known_verdicts import Judgement, KnownVerdicts
from ..planning.planner import StreamPlanner
from ..planning.state import PlannerState
from ..store import Definition, GenerationKey, GenerationRecord, StepMembership, Store, StreamKey
from .revisions import Revisions

LOGGED_STEPS = 16  # plans that are read from the log at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Steps [first, last) of a stream's trained lineage, and the generation whose log has them, on its mesh."""

    key: GenerationKey
    mesh: dict[str, int]
    first: int
    last: int


Logged = tuple[StepMembership, Span]


def lineage_spans(lineage: list[GenerationRecord]) -> list[Span]:
    """The trained lineage up to what its newest generation has planned, newest part first.

    Args:
        lineage: A generation, its parent, and so on.
    """
    spans: list[Span] = []
    last = lineage[0].planned
    for generation in lineage:
        spans.append(Span(key=generation.key, mesh=generation.mesh, first=generation.first_step, last=last))
        last = min(last, generation.first_step)
    return spans


def restore(
    store: Store,
    generation: GenerationRecord,
    plan_next: Callable[[StreamPlanner], StepPlan],
) -> tuple[StreamPlanner, int]:
    """A planner that plans the generation's next step, `generation.planned`; and how many steps that took to plan.

    Steps between the checkpoint and there are planned again and must equal the log: with the digest where the mesh is
    the same, in their pieces where only the placement may differ.

    Args:
        store: Plan log and checkpoints.
        generation: Where to go on.
        plan_next: Plans a planner's next step, fetching the metadata that it needs.

    Raises:
        DataError: A step comes out otherwise than it was logged: sources, or what tokenizes them, have changed.
    """
    spans = lineage_spans(store.generations.lineage(generation.key))
    planner = _from_checkpoint(store, generation, spans)
    planner.recall(_known_verdicts(store, generation.key.stream_key))
    logged, first = _logged(store, spans, planner.step, generation.planned), planner.step
    revisions = Revisions(store, generation.key)
    while planner.step < generation.planned:
        before = next(logged, None)
        revisions.follow_logged(planner, before[0] if before else None)
        check_equal(generation, plan_next(planner), before)
    return planner, planner.step - first


def parents_log(store: Store, generation: GenerationRecord) -> Iterator[Logged]:
    """What a generation still has to replay: its parent's plans of the steps [planned, replay_until)."""
    if generation.replay_until is None or generation.parent < 0:
        return iter(())
    parent = store.generations.get(replace(generation.key, generation=generation.parent))
    span = Span(key=parent.key, mesh=parent.mesh, first=generation.planned, last=generation.replay_until)
    return _logged(store, [span], span.first, span.last)


def _from_checkpoint(store: Store, generation: GenerationRecord, spans: list[Span]) -> StreamPlanner:
    definition: Definition = store.runs.definition(generation.key.run)
    found = (store.plans.checkpoint(span.key, span.last) for span in spans)
    best = next((checkpoint for checkpoint in found if checkpoint is not None), None)
    state = PlannerState.from_bytes(best[1]) if best else None
    known = definition.first(len(state.sources) if state else definition.num_created)
    return StreamPlanner(known.spec, generation.key.stream, known.lanes, generation.mesh, state=state)


def _known_verdicts(store: Store, key: StreamKey) -> KnownVerdicts:
    known = KnownVerdicts()
    for v in store.verdicts.measured(key):
        known.add(v.source, v.shard, v.block, v.row, Judgement(v.epoch, v.verdict, v.reason))
    return known


def _logged(store: Store, spans: list[Span], first: int, last: int) -> Iterator[Logged]:
    for span in reversed(spans):
        step = max(first, span.first)
        while step < min(last, span.last):
            for logged in store.plans.memberships(span.key, step, min(step + LOGGED_STEPS, last, span.last)):
                yield logged, span
            step += LOGGED_STEPS


def check_equal(generation: GenerationRecord, plan: StepPlan, logged: Logged | None) -> None:
    """Refuse a step that comes out otherwise than the log has it: its pieces, and on the same mesh their places.

    Raises:
        DataError: It does; names the step.
    """
    if logged is None or logged[0].step != plan.step:
        return
    before, span = logged
    is_equal = plan.digest == before.digest if span.mesh == generation.mesh else _same_pieces(plan, before)
    if not is_equal:
        raise DataError(
            f"{generation.key}: step {plan.step} comes out otherwise than it was planned before: "
            "the sources, or what tokenizes them, have changed",
            step=plan.step,
        )


def _same_pieces(plan: StepPlan, logged: StepMembership) -> bool:
    """Placement aside: of the images, how many each piece has."""
    columns = [name for name in PIECE_COLUMNS if name != "bin"]
    has_equal_units = np.array_equal(plan.units.piece_U, logged.piece_U)
    return has_equal_units and all(
        np.array_equal(getattr(plan.pieces, name), getattr(logged.pieces, name)) for name in columns
    )
