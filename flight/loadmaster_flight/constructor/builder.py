"""One stream's build: a thread keeps some steps assembled beyond what the stream's ranks have consumed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pyarrow as pa

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.telemetry import Histogram, log_fields
from loadmaster_flight.wire.control import Assignment, StreamProgress
from loadmaster_flight.wire.errors import (
    BadRequestError,
    GoneError,
    InternalError,
    LoadmasterError,
    MovedError,
    NotFoundError,
    NotReadyError,
    UnauthenticatedError,
)
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.skipping import Skip
from loadmaster_flight.wire.stages import BLOCKED, BUSY, StageClock
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_flight.wire.tls import Tls
from loadmaster_flight.wire.tracing import StepPlace, step_span

from .acknowledgement import Acknowledgement
from .delivery import Delivery
from .gather import Gatherer, Report
from .looking import StreamLook
from .modalities import run_schema
from .plans import PlanFeed
from .presence import Presence
from .slices import build_ranks, coords_of, rank_schema, slot_at
from .window import BuiltStep, StepWindow

LOG = logging.getLogger(__name__)
MAX_PAUSE_S = 1.0
GETS_PLAN, GETS_PIECES, IS_BUILT = range(3)
"""What becomes of a step, in this order."""
PLAN_PATIENCE_S, PIECES_PATIENCE_S = 0.5, 5.0
_PASSING = (NotFoundError, UnauthenticatedError)  # of a loader: it does not know its lease or the new key yet


class StreamBuilder:
    """Builds and keeps the steps of one assignment. All methods may be called by any thread; none blocks but `wait`.

    What cannot be built for good is told to every reader that waits; opening a stream anew has it tried again. `clock`
    counts how its thread spends its time. Busy: it assembles. Idle: it waits for a plan or for loaders. Blocked: as
    many steps are built as its ranks may have ahead. `build_times` are those of steps, `wait_times` what ranks tell of.

    Args:
        assignment: What is served. Its routes may change later by `reroute`.
        planner: Shared by all builders of a process.
        ticket_key: Gives the key that tickets to loaders are signed with.
        on_advance: Called, without a lock, when all ranks have acknowledged enough for the planner to hear of it.
        on_unreachable: Called when a loader could not be reached, or does not answer.
        tls: How to call loaders; None: what the environment says.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        planner: PlannerClient,
        ticket_key: Callable[[], bytes],
        on_advance: Callable[[], None] = lambda: None,
        on_unreachable: Report = lambda *_: None,
        tls: Tls | None = None,
    ) -> None:
        self.assignment = self._tried = assignment
        self.clock, self.build_times, self.wait_times = StageClock(), Histogram(), Histogram()
        self._sent_batches, self._sent_bytes = 0, 0
        self._skip = Skip.of(assignment.skip)
        self._coords = coords_of(assignment)
        self._slot_of = {rank: slot_at(assignment.mesh, coords) for rank, coords in self._coords.items()}
        self._feed = PlanFeed(planner, assignment)
        self._gatherer = Gatherer(ticket_key, on_unreachable, tls=tls)
        self._on_advance, self._reported, self._bound = on_advance, assignment.first_step, 0
        self._changed = threading.Condition()
        self._presence, self._awaited = Presence(assignment.ranks), ""
        self._spec: RunSpec | None = None
        self._window: StepWindow | None = None
        self._failure: LoadmasterError | None = None
        self._closed: LoadmasterError | None = None
        self._opened: dict[int, int] = {}
        self._status, self._begun, self._begun_s = "starting", (-1, GETS_PLAN), time.monotonic()
        self._is_hybrid = False
        name = f"build-{assignment.run}-{assignment.stream}-{assignment.generation}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def reroute(self, assignment: Assignment) -> None:
        """Take new loader routes of the same generation and ranks."""
        with self._changed:
            self.assignment = assignment
            self._changed.notify_all()

    def open(self, rank: int, step: int) -> None:
        """A rank begins to read at `step`.

        Raises:
            GoneError: All ranks have consumed that step, it is no longer kept.
        """
        self._require_served(rank)
        with self._changed:
            self._presence.hear(rank)
            self._opened[rank] = step
            if self._window is not None and self._spec is not None:
                self._require_fetching(rank, self._spec)
                if step < self._window.acknowledged:
                    raise GoneError(self._gone(step, self._window.acknowledged))
                self._window.open(rank, step)
            self._failure = None
            self._changed.notify_all()

    def acknowledge(self, rank: int, word: Acknowledgement) -> None:
        """A rank has consumed the steps before `word.step`, and may close its stream with that.

        Raises:
            NotReadyError: This constructor has only just got the stream.
            BadRequestError: No rank can have consumed that much.
            UnavailableError: The planner, which knows whether it can, cannot be asked.
            MovedError: The stream is not served here any more, so that nobody would be told.
        """
        step, is_leaving = word.step, word.is_leaving
        self._require_served(rank)
        self._require_bound(rank, step)
        with self._changed:
            if self._closed is not None:
                raise self._closed
            self._presence.hear(rank)
            self._tell_waits(rank, [wait for wait in word.waits if wait[0] < step])
            if word.host:
                self._presence.tell_host(rank, word.host)
            if is_leaving:
                self._presence.leave(rank)
            if self._window is None or self._spec is None:
                raise NotReadyError(f"stream {self.assignment.stream} is {self._status}")
            if self._window.acknowledge(rank, step):
                self._presence.move(rank)
            self._changed.notify_all()
            advanced = self._window.acknowledged - self._reported
            is_news = advanced >= (self._spec.budgets.bind_ahead + 1) // 2 if self._spec else False
            self._reported += advanced if is_news else 0
        if is_news or is_leaving:
            self._on_advance()

    def _tell_waits(self, rank: int, waits: list[tuple[int, float]]) -> None:
        self._presence.tell_waits(rank, waits)
        for _, wait_s in waits:
            self.wait_times.observe(wait_s)

    def note_sent(self, batch: pa.RecordBatch) -> None:
        """A rank gets this batch."""
        size_bytes = batch.nbytes
        with self._changed:
            self._sent_batches, self._sent_bytes = self._sent_batches + 1, self._sent_bytes + size_bytes

    def _require_bound(self, rank: int, step: int) -> None:
        """Refuse steps that are not bound: they were never served. Another constructor may have bound more than we."""
        with self._changed:
            if self._window is None or self._spec is None:
                return
            most = max(self._bound, self._skip.ahead(self._window.acknowledged, self._spec.budgets.bind_ahead))
        if step > most:
            most = max(most, self._feed.bound())
            with self._changed:
                self._bound = max(self._bound, most)
        if step > most:
            raise BadRequestError(f"rank {rank} can have consumed the steps before {most} at most, got {step}")

    def wait(self, rank: int, step: int, *, timeout_s: float) -> tuple[pa.RecordBatch, int] | None:
        """The rank's batch of a step and the microseconds that building the step took, once it is there.

        None after `timeout_s`, or when the stream `is_over` before that step.

        Raises:
            MovedError: The rank has opened another stream further on, or acknowledged more than it has read here.
            LoadmasterError: It cannot be built, or is no longer served here.
        """
        self._require_served(rank)
        with self._changed:
            self._changed.wait_for(lambda: self._is_decided(step), timeout_s)
            if error := self._closed or self._failure or self._left_behind(rank, step):
                raise error
            built = self._window.get(step) if self._window is not None else None
            return (built.batches[rank], built.build_us) if built is not None else None

    def after(self, step: int) -> int:
        """The step that is served after `step`."""
        return self._skip.after(step)

    def is_over(self, step: int) -> bool:
        """Whether the stream has no such step."""
        with self._changed:
            return self._window is not None and self._window.is_over(step)

    def schema_at(self, rank: int, step: int, *, timeout_s: float) -> pa.Schema:
        """Schema of a step's batch: that of the built one, else what the run's spec says, for which it waits.

        Raises:
            NotReadyError: The spec has not come within `timeout_s`.
            LoadmasterError: The stream cannot be built, or is no longer served here.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._spec or self._closed or self._failure, timeout_s)
            if error := self._closed or (self._failure if self._spec is None else None):
                raise error
            if self._spec is None:
                raise NotReadyError(f"stream {self.assignment.stream} of {self.assignment.run} is {self._status}")
            built = self._window.get(step) if self._window is not None else None
            if built is not None:
                return built.batches[rank].schema
            return self._expected_schema(rank, step, self._spec)

    def _expected_schema(self, rank: int, step: int, spec: RunSpec) -> pa.Schema:
        """By the spec and the last step built: where it is wrong a reader finds its stream ended, and opens it anew."""
        whole = run_schema(spec, seq_len=spec.batch.capacity_at(step), is_hybrid=self._is_hybrid)
        place = self._slot_of[rank][1]
        return rank_schema(whole, place, spec.mesh, rank=rank, sizes=self.assignment.mesh)

    def status(self, step: int) -> str:
        """Why `step` is not there yet, for people."""
        with self._changed:
            window = self._window
            if window is None or step < window.ahead(max(1, self.assignment.build_ahead)):
                return f"{self._status}; {self._awaited}" if self._awaited else self._status
            slowest = self._presence.tell(window.acknowledged_by_rank, window.slowest())
            return f"step {step} waits for {slowest}"

    def is_stuck(self) -> bool:
        """Whether the step in hand has waited for its plan for a while, or for its pieces for long."""
        _, phase = self._begun
        patience_s = {GETS_PLAN: PLAN_PATIENCE_S, GETS_PIECES: PIECES_PATIENCE_S}.get(phase)
        return patience_s is not None and time.monotonic() - self._begun_s > patience_s

    def note_awaited(self, text: str) -> None:
        """Whom all ranks of the stream wait for, says the planner: it knows those of other constructors too."""
        with self._changed:
            self._awaited = text

    def progress(self) -> StreamProgress:
        """What all ranks served here have acknowledged."""
        a = self.assignment
        with self._changed:
            window = self._window
            step = window.acknowledged if window is not None else a.first_step
            is_ready = window is not None and (window.is_over(window.low) or window.get(window.low) is not None)
            return StreamProgress(
                run=a.run,
                stream=a.stream,
                generation=a.generation,
                step=step,
                status=self._status,
                is_ready=is_ready,
                ranks=self._presence.report(window.acknowledged_by_rank if window is not None else {}),
                steps_ready=window.num_built if window is not None else 0,
            )

    @property
    def size_bytes(self) -> int:
        with self._changed:
            return self._window.size_bytes if self._window is not None else 0

    @property
    def num_instead(self) -> int:
        """How often shadows were asked for pieces instead of a loader."""
        return self._gatherer.num_instead

    def look(self) -> StreamLook:
        """What it has and has done, for who watches it."""
        with self._changed:
            window, spec = self._window, self._spec
            return StreamLook(
                acknowledged=window.acknowledged if window is not None else self.assignment.first_step,
                num_steps=window.num_built if window is not None else 0,
                max_steps=max(1, self.assignment.build_ahead),
                size_bytes=window.size_bytes if window is not None else 0,
                budget_bytes=spec.budgets.build_bytes if spec is not None else None,
                sent_batches=self._sent_batches,
                sent_bytes=self._sent_bytes,
                seen_s=self._presence.silences(),
            )

    def close(self, reason: LoadmasterError) -> None:
        """Stop building; readers get `reason`. Idempotent, returns at once."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end after `close`."""
        self._thread.join(timeout_s)

    def _require_served(self, rank: int) -> None:
        if rank not in self._slot_of:
            raise MovedError(f"rank {rank} of run {self.assignment.run} is not served here: ask the planner again")

    def _require_fetching(self, rank: int, spec: RunSpec) -> None:
        if not spec.mesh.fetches(self._coords[rank]):
            raise BadRequestError(f"rank {rank} must get its batches from tp rank 0: mesh.tp_mode is broadcast")

    def _left_behind(self, rank: int, step: int) -> LoadmasterError | None:
        """Steps behind all positions are not built again: who waits for one would wait for ever."""
        if self._window is None or step >= self._window.low:
            return None
        return MovedError(
            f"rank {rank} is at step {self._window.low} or later by another stream: open step {step} anew"
        )

    def _gone(self, step: int, acknowledged: int) -> str:
        a = self.assignment
        return f"step {step} of stream {a.stream} of run {a.run} is gone: all ranks have acknowledged {acknowledged}"

    def _is_decided(self, step: int) -> bool:
        if self._closed or self._failure:
            return True
        window = self._window
        return window is not None and (window.get(step) is not None or window.is_over(step) or step < window.low)

    def _run(self) -> None:
        a = self.assignment
        with log_fields(run=a.run, stream=a.stream, generation=a.generation):
            self._build_until_closed()

    def _build_until_closed(self) -> None:
        pause_s = 0.02
        while self._closed is None:
            try:
                self._build_one()
                pause_s = 0.02
            except LoadmasterError as error:
                if error.retry:
                    self._say(error.message)
                    self._pause(pause_s)
                    pause_s = min(pause_s * 1.6, MAX_PAUSE_S)
                else:
                    self._fail(error)
            except Exception as error:
                LOG.exception("building a step failed")
                self._fail(InternalError(f"{type(error).__name__} while building a step: {error}"))
        self._gatherer.close()
        self._feed.close()

    def _build_one(self) -> None:
        self._tried = self.assignment
        window, spec = self._prepared()
        with self._changed:
            with self.clock.doing(BLOCKED):
                self._changed.wait_for(lambda: self._closed is not None or window.next_missing() is not None)
            step, until = window.next_missing(), window.ahead(spec.budgets.bind_ahead)
        if self._closed is not None or step is None:
            return
        self._feed.forget_before(step)
        self._begin(step, GETS_PLAN, "its plan")
        if step < self._skip.first:
            until = min(until, self._skip.first)  # of what is left out no plan is needed
        plan = self._feed.get(step, until=max(step + 1, until))
        with log_fields(step=step), step_span("build", self._place(step)):
            built = self._build(plan, spec) if plan is not None else None
        with self._changed:
            if built is not None:
                window.put(built)
            if plan is None or plan.is_final:
                window.end = step if plan is None else step + 1
            self._begun = step, IS_BUILT
            self._status = f"step {step} is built"
            self._changed.notify_all()

    def _prepared(self) -> tuple[StepWindow, RunSpec]:
        if self._window is not None and self._spec is not None:
            return self._window, self._spec
        spec, first_step = self._feed.spec(), self._feed.acknowledged()
        fetching = [rank for rank, coords in self._coords.items() if spec.mesh.fetches(coords)]
        window = StepWindow(
            fetching,
            first_step=max(first_step, self.assignment.first_step),
            build_ahead=self.assignment.build_ahead,
            budget_bytes=spec.budgets.build_bytes,
            skip=self._skip,
        )
        with self._changed:
            for rank in self._opened.keys() & fetching:
                window.open(rank, self._opened[rank])
            self._spec, self._window = spec, window
            self._changed.notify_all()
        return window, spec

    def _build(self, plan: StepPlan, spec: RunSpec) -> BuiltStep:
        self._begin(plan.step, GETS_PIECES, f"{len(plan.pieces)} pieces from loaders")
        start_s = time.monotonic()
        tried = self._tried = self.assignment
        try:
            with step_span("gather", self._place(plan.step), pieces=len(plan.pieces)):
                delivery = Delivery.of(self._gatherer.gather(tried, plan, is_current=lambda: self._goes_on(tried)))
        except _PASSING as error:
            raise MovedError(error.message) from error
        with self.clock.doing(BUSY), step_span("assemble", self._place(plan.step)):
            batches = build_ranks(plan, delivery, spec, self.assignment.mesh, self._slot_of)
        self._is_hybrid = plan.is_hybrid
        took_s = time.monotonic() - start_s
        self.build_times.observe(took_s)
        return BuiltStep(step=plan.step, batches=batches, build_us=int(took_s * 1e6))

    def _place(self, step: int) -> StepPlace:
        a = self.assignment
        return StepPlace(a.run, a.stream, a.generation, step)

    def _goes_on(self, tried: Assignment) -> bool:
        return self._closed is None and self.assignment.loaders == tried.loaders

    def _begin(self, step: int, phase: int, awaited: str) -> None:
        """Say what is being waited for; a further try of the same keeps what the one before it met: that tells more."""
        if step != self._begun[0] or phase > self._begun[1]:
            self._begun, self._begun_s = (step, phase), time.monotonic()
            self._say(f"step {step} waits for {awaited}")

    def _say(self, status: str) -> None:
        with self._changed:
            self._status = status

    def _pause(self, pause_s: float) -> None:
        """Wait, but no longer than until there are other routes."""
        with self._changed:
            tried = self._tried
            self._changed.wait_for(lambda: self._closed is not None or self.assignment is not tried, pause_s)

    def _fail(self, error: LoadmasterError) -> None:
        """Tell readers, then wait until one of them asks again."""
        with self._changed:
            self._failure, self._status = error, error.message
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed is not None or self._failure is None)
