"""Writes planned steps to the plan log, several in one transaction.

To write and to wake everybody costs as much for many steps as for one, and more than planning a small one.
"""

from __future__ import annotations

import time
from typing import Any

from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.step_plan import StepPlan, plans_to_bytes

from ..planning.epoch_counts import EpochCounts
from ..planning.planner import PlannerState, StreamPlanner
from ..store import GenerationKey, PlannedStep, PlanRecord, Store, VerdictKind, VerdictRecord
from .counters import Counters


class StepWriter:
    """Takes the steps of a generation as they are planned, and writes them together. Used by one thread.

    Args:
        store: Has the plan log.
        key: The generation.
        checkpoint_steps: Steps from one base checkpoint to the next.
        counters: Told of checkpoints, and of what waits for a later step.
    """

    def __init__(self, store: Store, key: GenerationKey, *, checkpoint_steps: int, counters: Counters) -> None:
        self._store, self._key, self._checkpoint_steps = store, key, checkpoint_steps
        self._counters = counters
        self._steps: list[PlannedStep] = []
        self._learned: dict[int, EpochCounts] = {}
        self._state: PlannerState | None = None

    def add(self, planner: StreamPlanner, plan: StepPlan) -> None:
        """Take the step that a planner has planned last. Nothing is written yet."""
        state = self._state = planner.state()
        record = plan_record(plan, list(state.placed_tokens_S), graph=planner.aggregate(), origins=planner.origins())
        is_base = planner.step % self._checkpoint_steps == 0 or plan.is_final
        verdicts = _verdicts(self._key.stream, planner.new_verdicts())
        checkpoint = self._encoded(state) if is_base else None
        self._steps.append(PlannedStep(plan=record, checkpoint=checkpoint, verdicts=verdicts))

    def write(self) -> bool:
        """Write all that was taken and wake who waits for it; whether there was any. Where that fails it is forgotten:
        the log says where to go on.

        Raises:
            GoneError, SupersededError: See `PlanRepository.commit_all`.
        """
        steps, state = self._steps, self._state
        self._steps, self._state = [], None
        if state is None:
            return False
        self._store.plans.commit_all(self._key, steps)
        for checkpoint in (step.checkpoint for step in steps if step.checkpoint is not None):
            self._counters.add("checkpoints_written")
            self._counters.add("checkpoint_bytes_written", len(checkpoint))
        self._counters.of(self._key.stream_key).queue_tokens = state.queue_tokens
        self._keep_counts(state)
        self._store.bulletin.post(str(self._key.stream_key))
        return True

    def _encoded(self, state: PlannerState) -> bytes:
        start_s = time.monotonic()
        data = state.to_bytes()
        self._counters.encoding.observe(time.monotonic() - start_s)
        return data

    def _keep_counts(self, state: PlannerState) -> None:
        """What an epoch of a source held is known when it is planned to its end."""
        found = {ordinal: source.learned for ordinal, source in enumerate(state.sources) if source.learned is not None}
        fresh = {ordinal: counts for ordinal, counts in found.items() if self._learned.get(ordinal) != counts}
        if fresh:
            self._store.runs.learn(self._key.run, fresh)
            self._learned |= fresh


def plan_record(
    plan: StepPlan, total_tokens: list[int], *, graph: dict[str, object], origins: dict[str, object]
) -> PlanRecord:
    """A step as the plan log keeps it.

    Args:
        plan: With its digest.
        total_tokens: Shape (S,), placed since step 0 of the lineage.
        graph, origins: What `StreamPlanner.aggregate` and `origins` say of the step.
    """
    summary = {
        "num_tokens": plan.num_tokens,
        "num_pieces": len(plan.pieces),
        "capacity": plan.num_bins * plan.seq_len,
        "source_tokens": plan.source_tokens_S.tolist(),
        "total_tokens": total_tokens,
        "weights": plan.weights_S.tolist(),
        "graph": graph,
        "origins": origins,
    }
    return PlanRecord(
        step=plan.step,
        digest=plan.digest,
        revision=plan.revision,
        is_final=plan.is_final,
        body=plans_to_bytes([plan]),
        summary=summary,
    )


def _verdicts(stream: str, rows: Any) -> list[VerdictRecord]:
    """Rows of schema METADATA that were left out, as entries of the journal; those that have tokens are too long."""
    names = ["source", "epoch", "shard", "block", "row", "verdict", "reason", "num_tokens"]
    records = []
    for row in rows.select(names).to_pylist():
        kind = VerdictKind.OVER_LONG if row.pop("num_tokens") else VerdictKind.MEASURED
        row["reason"] = row["reason"] or Verdict(row["verdict"]).name
        records.append(VerdictRecord(kind=kind, stream=stream, **row))
    return records
