"""The plan loop: one thread that keeps a generation of a stream planned ahead of its ranks."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from loadmaster_flight.telemetry import log_fields
from loadmaster_flight.wire.errors import GoneError, InternalError, LoadmasterError, NotFoundError, RunPausedError
from loadmaster_flight.wire.stages import BLOCKED, BUSY, IDLE, StageClock
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_flight.wire.tls import Tls
from loadmaster_flight.wire.tracing import ROOT, StepPlace, step_span
from loadmaster_flight.wire.waiting import PLANNER_URL

from ..outage import OutageLog
from ..planning.demand import NeedMetadata
from ..planning.planner import StreamPlanner
from ..store import (
    GenerationKey,
    GenerationRecord,
    GenerationState,
    Store,
    SupersededError,
)
from .counters import Counters
from .measuring import MetadataFetcher, StoppedError
from .restoring import check_equal, parents_log, restore
from .revisions import Revisions
from .step_writer import StepWriter

LOG = logging.getLogger(__name__)
LOOK_S = 1.0
"""The loop looks at the store this often without being woken."""
RETRY_S = 0.25
MAX_TOGETHER, TOGETHER_S = 16, 0.1
"""So many steps are written at once, as far as they are planned in so many seconds: ranks may wait for the first."""
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
        self._store, self.key = store, key
        self._topic = str(key.stream_key)
        self._plan_ahead = store.runs.definition(key.run).spec.budgets.plan_ahead
        self._fetcher = MetadataFetcher(store, key.run, lambda reason: store.generations.note(key, reason), tls=tls)
        self.pardons: Counter[int] = Counter() if pardons is None else pardons
        self._counters = Counters() if counters is None else counters
        self._counts = self._counters.of(key.stream_key)
        self._writer = StepWriter(store, key, checkpoint_steps=checkpoint_steps, counters=self._counters)
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
            ahead = generation.skip.ahead(generation.acknowledged, self._plan_ahead)
            if planner.is_over or planner.step >= ahead:
                self._store.bulletin.wait(self._topic, seen, LOOK_S)
            elif planner.step < (generation.replay_until or 0):
                before = next(replayed, None)
                revisions.follow_logged(planner, before[0] if before else None)
                with step_span(ROOT, self._place(planner.step), is_replayed=True):
                    plan = self._replay(planner)
                    check_equal(generation, plan, before)
                    self._writer.add(planner, plan)
                    self._write()
            else:
                self._plan_timed(planner, revisions, ahead)

    def _place(self, step: int) -> StepPlace:
        return StepPlace(self.key.run, self.key.stream, self.key.generation, step)

    def _plan_timed(self, planner: StreamPlanner, revisions: Revisions, ahead: int) -> None:
        before_s, first = self.clock.read()[BUSY], planner.step
        with self.clock.doing(BUSY):
            self._plan_some(planner, revisions, ahead)
        busy_s, num_steps = self.clock.read()[BUSY] - before_s, planner.step - first
        for _ in range(num_steps):
            self._counts.planning.observe(busy_s / num_steps)

    def _plan_some(self, planner: StreamPlanner, revisions: Revisions, ahead: int) -> None:
        """Plan the next step, and those before `ahead` that take no time after it; write them together."""
        due = revisions.follow(planner)
        last = min(ahead, planner.step + MAX_TOGETHER, ahead if due is None else due)
        until_s = time.monotonic() + TOGETHER_S
        try:
            while True:
                with step_span(ROOT, self._place(planner.step)), log_fields(step=planner.step):
                    self._writer.add(planner, self._next_plan(planner, lambda: revisions.have_moved(planner)))
                if planner.is_over or planner.step >= last or time.monotonic() > until_s:
                    return
        finally:
            self._write()

    def _restore(self, generation: GenerationRecord) -> StreamPlanner:
        start_s = time.monotonic()
        planner, num_replanned = restore(self._store, generation, self._replay)
        self._counters.add("restores")
        self._counters.add("restored_steps", num_replanned)
        self._counters.set("last_restore_seconds", time.monotonic() - start_s)
        self._counts.queue_tokens = planner.state().queue_tokens
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
        while not self._stop.is_set():
            try:
                return planner.plan_next()
            except NeedMetadata as need:
                self._write()  # a loader may take its time
                with step_span("measure", self._place(planner.step), demands=len(need.demands)):
                    for batch in self.clock.each(self._fetcher.fetch(need.demands, is_moot), IDLE):
                        planner.feed(batch)
                if is_moot():
                    break
        raise StoppedError

    def _write(self) -> None:
        """Write what is planned; nothing where nothing is."""
        if self._writer.write():
            self._outage.went_well()
