"""The planner's side of a build: the run's definition, and this constructor's slice of the plans."""

from __future__ import annotations

import logging
import threading
import time

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.control import Assignment, CreateRunRequest, StreamView
from loadmaster_flight.wire.errors import LoadmasterError, NotReadyError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.step_plan import StepPlan, plans_from_bytes

LOG = logging.getLogger(__name__)
PLAN_WAIT_S = 2.0
REFILL_S = 1.0
"""Plans ahead are asked for this often at least, where one is missing."""
RETRY_S = 0.25
"""Where that failed, they are asked for again after this long."""


class PlanFeed:
    """Fetches and binds plans of one generation of a stream. Used by one thread.

    Those of later steps come along, and more of them once a quarter or a second is used up: while the planner is away,
    the steps that are bound are built.
    """

    def __init__(self, planner: PlannerClient, assignment: Assignment) -> None:
        self._planner, self._assignment = planner, assignment
        self._plans: dict[int, StepPlan] = {}
        self._has_images = False
        self._lock = threading.Lock()
        self._came: dict[int, StepPlan] = {}
        self._refill: threading.Thread | None = None
        self._refill_at, self._refill_s = 0, 0.0

    def spec(self) -> RunSpec:
        """The run's frozen spec."""
        definition = self._planner.get(f"/runs/{self._assignment.run}/definition", CreateRunRequest)
        spec = RunSpec.model_validate(definition.spec)
        self._has_images = spec.media.vision is not None
        return spec

    def acknowledged(self) -> int:
        """What the planner knows to be consumed by all ranks: where a restarted constructor goes on."""
        view = self._view()
        return view.acknowledged if view.generation == self._assignment.generation else self._assignment.first_step

    def bound(self) -> int:
        """Exclusive bound of the steps that anybody may have been served. Any thread may call it."""
        view = self._view()
        return view.bound if view.generation == self._assignment.generation else self._assignment.first_step

    def get(self, step: int, *, until: int) -> StepPlan | None:
        """The slice of the plan of `step`; fetches those up to `until` along. None: the stream is over before `step`.

        Raises:
            NotReadyError: It is not planned yet.
            LoadmasterError: The planner's answer, for example that the run is paused.
        """
        with self._lock:
            self._plans |= self._came
            self._came = {}
        if step not in self._plans:
            self._plans |= self._fetch(step, until, PLAN_WAIT_S)
        self._look_ahead(step, until)
        if plan := self._plans.get(step):
            return plan
        view = self._view()
        if view.is_planned_to_end and step >= view.planned:
            return None
        raise NotReadyError(f"step {step} is not planned yet" + (f": {view.reason}" if view.reason else ""))

    def forget_before(self, step: int) -> None:
        """Drop plans of steps that are not needed any more."""
        self._plans = {s: plan for s, plan in self._plans.items() if s >= step}

    def close(self) -> None:
        """Close the calling thread's connection."""
        self._planner.close()

    def _look_ahead(self, step: int, until: int) -> None:
        """Ask for later plans beside the build, so that a planner that does not answer holds nothing up."""
        last, quarter, now_s = max(self._plans, default=step), max(1, (until - step) // 4), time.monotonic()
        is_used_up = last + 1 <= until - quarter and step >= self._refill_at
        if last + 1 >= until or not (is_used_up or now_s >= self._refill_s):
            return
        if self._refill is not None and self._refill.is_alive():
            return
        self._refill_at, self._refill_s = step + quarter, now_s + REFILL_S
        self._refill = threading.Thread(target=self._fetch_more, args=(last + 1, until), name="plans", daemon=True)
        self._refill.start()

    def _fetch_more(self, first: int, until: int) -> None:
        try:
            plans = self._fetch(first, until, 0)
        except LoadmasterError as error:  # whoever needs the step hears of it
            LOG.debug("plans ahead: %s", error)
            self._refill_s = time.monotonic() + RETRY_S
            return
        with self._lock:
            self._came |= plans

    def _fetch(self, first: int, until: int, wait_s: float) -> dict[int, StepPlan]:
        a = self._assignment
        dp_ranks = ",".join(map(str, sorted(set(a.dp_of_rank))))
        query = {"first": first, "last": until, "wait_s": wait_s, "bind": 1, "dp_ranks": dp_ranks}
        if self._has_images:
            query["encoder_ranks"] = ",".join(map(str, sorted(a.ranks)))
        path = f"/runs/{a.run}/streams/{a.stream}/generations/{a.generation}/plans"
        return {p.step: p for p in plans_from_bytes(self._planner.request("GET", path, query=query))}

    def _view(self) -> StreamView:
        return self._planner.get(f"/runs/{self._assignment.run}/streams/{self._assignment.stream}", StreamView)
