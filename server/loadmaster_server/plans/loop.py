"""The plan loop: one thread that keeps a generation of a stream planned ahead of its ranks."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from loadmaster_flight.telemetry import log_fields
from loadmaster_flight.wire.errors import GoneError, InternalError, LoadmasterError, NotFoundError, RunPausedError
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.stages import BLOCKED, BUSY, IDLE, StageClock
from loadmaster_flight.wire.step_plan import StepPlan, plans_to_bytes
from loadmaster_flight.wire.tls import Tls
from loadmaster_flight.wire.tracing import ROOT, StepPlace, step_span
from loadmaster_flight.wire.waiting import PLANNER_URL

from ..outage import OutageLog
from ..planning.demand import NeedMetadata
from ..planning.epoch_counts import EpochCounts
from ..planning.planner import PlannerState, StreamPlanner
from ..store import (
    GenerationKey,
    GenerationRecord,
    GenerationState,
    PlanRecord,
    Store,
    SupersededError,
    VerdictKind,
    VerdictRecord,
)
from .counters import Counters
from .measuring import MetadataFetcher, StoppedError
from .restoring import check_equal, parents_log, restore
from .revisions import Revisions

LOG = logging.getLogger(__name__)
LOOK_S = 1.0
"""The loop looks at the store this often without being woken."""
RETRY_S = 0.25
_OVER = (GenerationState.FENCED, GenerationState.ENDED)


class PlanLoop:
    """Plans one generation until it is over. The planner itself is used by the loop's own thread only.

    Attributes:
        clock: Busy: it plans. Idle: it waits for metadata. Blocked: enough is planned, or the stream is stopped.

    Args:
        store: Where plans go, and what says how far the ranks are.
        key: The generation.
        checkpoint_steps: Steps from one base checkpoint to the next.
        pardons: Step -> how often a person let the stream go on that had paused there. Those of the generation before:
            its ranks have ended with the pause, and what was forgiven must not stop the new ones again.
        counters: Told of restores and checkpoints.
        tls: How to call loaders; None: what the environment says.
    """

    def __init__(
        self,
        store: Store,
        key: GenerationKey,
        *,
        checkpoint_steps: int,
        pardons: Counter[int] | None = None,
        counters: Counters | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._store, self.key, self._checkpoint_steps = store, key, checkpoint_steps
        self._topic = str(key.stream_key)
        self._plan_ahead = store.runs.definition(key.run).spec.budgets.plan_ahead
        self._fetcher = MetadataFetcher(store, key.run, lambda reason: store.generations.note(key, reason), tls=tls)
        self.pardons: Counter[int] = Counter() if pardons is None else pardons
        self._learned: dict[int, EpochCounts] = {}
        self._counters = Counters() if counters is None else counters
        self._counts = self._counters.of(key.stream_key)
        self._outage = OutageLog(str(key))
        self._paused_at: int | None = None
        self.clock = StageClock(BLOCKED)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"plan {key}", daemon=True)

    def start(self) -> None:
        """Begin to plan; returns at once."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask the loop to end; does not wait. Idempotent."""
        self._stop.set()
        self._fetcher.close()
        self._store.bulletin.post(self._topic)

    def join(self, timeout_s: float) -> None:
        """Wait for the loop to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with log_fields(run=self.key.run, stream=self.key.stream, generation=self.key.generation):
            self._plan_until_over()

    def _plan_until_over(self) -> None:
        try:
            while not self._stop.is_set() and not self._store.bulletin.is_closed:
                try:
                    if self._advance():
                        return
                except NotFoundError:
                    return
                except Exception as error:  # the store is away: look again, from the last commit on
                    self._outage.met(error)
                    self._stop.wait(RETRY_S)
        finally:
            self._fetcher.close()

    def _advance(self) -> bool:
        """Plan until something stops it, or wait a moment while it is stopped; returns whether it is over."""
        seen = self._store.bulletin.seen(self._topic)
        generation = self._store.generations.get(self.key)
        if generation.state in _OVER:
            return True
        if generation.state is not GenerationState.OPEN:
            self._paused_at = generation.planned if generation.state is GenerationState.PAUSED else None
            self._store.bulletin.wait(self._topic, seen, LOOK_S)
            return False
        if self._paused_at is not None:
            self.pardons[self._paused_at] += 1
            self._paused_at = None
        self._plan_or_report(generation)
        return False

    def _plan_or_report(self, generation: GenerationRecord) -> None:
        """Plan until something stops it, and let the ranks learn what: their next request for plans says so."""
        try:
            self._plan_while_open(generation)
        except (StoppedError, GoneError, SupersededError):
            return
        except RunPausedError as error:
            self._stop_stream(GenerationState.PAUSED, RunPausedError(f"{error.message}: {self._way_on()}"))
        except LoadmasterError as error:
            if error.retry:
                raise
            self._stop_stream(GenerationState.FAILED, error)
        except Exception as error:
            LOG.exception("%s: planning failed", self.key)
            self._stop_stream(
                GenerationState.FAILED, InternalError(f"planning failed: {type(error).__name__}: {error}")
            )

    def _way_on(self) -> str:
        """The command; the planner itself cannot know under which address people reach it."""
        return f"loadmaster resume {PLANNER_URL} --run {self.key.run}"

    def _stop_stream(self, state: GenerationState, error: LoadmasterError) -> None:
        LOG.error("%s is %s: %s", self.key, state.value, error)
        message = error.message
        if state is GenerationState.FAILED:
            message = f"{message}; once that is put right: {self._way_on()}"
        self._store.generations.stop(self.key, state, error.code, message)
        self._store.bulletin.post(self._topic)

    def _plan_while_open(self, generation: GenerationRecord) -> None:
        planner = self._restore(generation)
        if planner.is_over and generation.end_step is None:  # its parent ended where it begins
            self._store.generations.end(self.key, planner.step)
            self._store.bulletin.post(self._topic)
        replayed, revisions = parents_log(self._store, generation), Revisions(self._store, self.key)
        while not self._stop.is_set():
            seen = self._store.bulletin.seen(self._topic)
            generation = self._store.generations.get(self.key)
            if generation.state is not GenerationState.OPEN or self._store.bulletin.is_closed:
                return
            if planner.step > generation.planned:  # a revision took plans back
                return
            if planner.is_over or planner.step >= generation.skip.ahead(generation.acknowledged, self._plan_ahead):
                self._store.bulletin.wait(self._topic, seen, LOOK_S)
            elif planner.step < (generation.replay_until or 0):
                before = next(replayed, None)
                revisions.follow_logged(planner, before[0] if before else None)
                with step_span(ROOT, self._place(planner.step), is_replayed=True):
                    plan = self._replay(planner)
                    check_equal(generation, plan, before)
                    self._commit(planner, plan)
            else:
                self._plan_and_commit(planner, revisions)

    def _place(self, step: int) -> StepPlace:
        return StepPlace(self.key.run, self.key.stream, self.key.generation, step)

    def _plan_and_commit(self, planner: StreamPlanner, revisions: Revisions) -> None:
        before_s = self.clock.read()[BUSY]
        with step_span(ROOT, self._place(planner.step)), self.clock.doing(BUSY), log_fields(step=planner.step):
            revisions.follow(planner)
            self._commit(planner, self._next_plan(planner, lambda: revisions.have_moved(planner)))
        self._counts.planning.observe(self.clock.read()[BUSY] - before_s)

    def _restore(self, generation: GenerationRecord) -> StreamPlanner:
        start_s = time.monotonic()
        planner, num_replanned = restore(self._store, generation, self._replay)
        self._counters.add("restores")
        self._counters.add("restored_steps", num_replanned)
        self._counters.set("last_restore_seconds", time.monotonic() - start_s)
        self._counts.queue_tokens = _queue_tokens(planner.state())
        return planner

    def _replay(self, planner: StreamPlanner) -> StepPlan:
        """Plan a step that was planned before: what was too bad then has been let pass since."""
        while True:
            try:
                return self._measure_and_plan(planner)
            except RunPausedError:
                planner.forgive_bad_rows()

    def _next_plan(self, planner: StreamPlanner, is_moot: Callable[[], bool]) -> StepPlan:
        """Plan a step; each pardon passes over the bad rows of one pause."""
        for _ in range(self.pardons[planner.step]):
            try:
                return self._measure_and_plan(planner, is_moot)
            except RunPausedError:
                planner.forgive_bad_rows()
        return self._measure_and_plan(planner, is_moot)

    def _measure_and_plan(self, planner: StreamPlanner, is_moot: Callable[[], bool] = lambda: False) -> StepPlan:
        """Plan a step with the metadata that it needs, unless a revision comes that makes another step of it."""
        while not (self._stop.is_set() or is_moot()):
            try:
                return planner.plan_next()
            except NeedMetadata as need:
                with step_span("measure", self._place(planner.step), demands=len(need.demands)):
                    for batch in self.clock.each(self._fetcher.fetch(need.demands, is_moot), IDLE):
                        planner.feed(batch)
        raise StoppedError

    def _commit(self, planner: StreamPlanner, plan: StepPlan) -> None:
        state = planner.state()
        record = plan_record(plan, list(state.placed_tokens_S), graph=planner.aggregate(), origins=planner.origins())
        is_base = planner.step % self._checkpoint_steps == 0 or plan.is_final
        checkpoint = self._encoded(state) if is_base else None
        verdicts = _verdicts(self.key.stream, planner.new_verdicts())
        self._store.plans.commit(self.key, record, checkpoint=checkpoint, verdicts=verdicts)
        if checkpoint is not None:
            self._counters.add("checkpoints_written")
            self._counters.add("checkpoint_bytes_written", len(checkpoint))
        self._counts.queue_tokens = _queue_tokens(state)
        self._keep_counts(state)
        self._outage.went_well()
        self._store.bulletin.post(self._topic)

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
            self._store.runs.learn(self.key.run, fresh)
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


def _queue_tokens(state: PlannerState) -> int:
    return int(state.queue.tokens_N.sum())


def _verdicts(stream: str, rows: Any) -> list[VerdictRecord]:
    """Rows of schema METADATA that were left out, as entries of the journal; those that have tokens are too long."""
    names = ["source", "epoch", "shard", "block", "row", "verdict", "reason", "num_tokens"]
    records = []
    for row in rows.select(names).to_pylist():
        kind = VerdictKind.OVER_LONG if row.pop("num_tokens") else VerdictKind.MEASURED
        row["reason"] = row["reason"] or Verdict(row["verdict"]).name
        records.append(VerdictRecord(kind=kind, stream=stream, **row))
    return records
