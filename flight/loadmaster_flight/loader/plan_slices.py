"""The loader's own slices of plans: fetched from the planner, checked against a ticket, kept until released."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..wire.control import StreamProgress
from ..wire.errors import ConflictError, LoadmasterError, NotReadyError
from ..wire.http import PlannerClient, retrying
from ..wire.step_plan import MaskedSample, StepPlan, plans_from_bytes
from ..wire.tickets import MaterializeTicket
from ..wire.tls import Tls

LOG = logging.getLogger(__name__)
FETCH_AHEAD = 32
"""Steps beyond the ticket's that one request asks for along: they will be wanted next."""
LOOK_AHEAD = 26
"""Steps beyond the ticket's that are held if there are any: while the planner is away, what is bound is served."""
ASK_AGAIN_S = 1.0
"""Where some of these were not planned yet, they are asked for again after this long, or after a few steps."""
FETCH_DEADLINE_S = 10.0
MAX_PIECES = 1 << 20
"""Pieces of all slices kept together, about 72 bytes each."""


class SliceKey(NamedTuple):
    """A step as one set of partitions sees it."""

    run: str
    stream: str
    generation: int
    partitions: tuple[tuple[int, int, int], ...]
    step: int


class Asked(NamedTuple):
    """When later steps were asked for: at which step, and at what time in monotonic seconds."""

    step: int
    at_s: float


class PlanSlices:
    """Slices of plans by ticket, for any number of threads.

    Args:
        planner_url: Has the plans.
        tls: How to call the planner; None: what the environment says.
    """

    def __init__(self, planner_url: str, *, tls: Tls | None = None) -> None:
        self._planner_url, self._tls = planner_url, tls
        self._lock = threading.Lock()
        self._plans: OrderedDict[SliceKey, StepPlan] = OrderedDict()
        self._num_pieces = 0
        self._asked: dict[SliceKey, Asked] = {}

    def of_ticket(self, ticket: MaterializeTicket) -> list[StepPlan]:
        """The ticket's steps, cut to its partitions, dp ranks and encoder ranks.

        Raises:
            ConflictError: The planner holds another plan of a step than the ticket speaks of; names the step.
            NotReadyError: A step is not planned.
            LoadmasterError: What the planner answered.
        """
        steps = range(ticket.first_step, ticket.last_step)
        found = [
            self._checked(ticket, step, digest).of_ranks(set(ticket.dp_ranks), ticket.encoder_ranks)
            for step, digest in zip(steps, ticket.digests, strict=True)
        ]
        self._look_ahead(ticket)
        return found

    def take_released(self, progress: StreamProgress) -> list[StepPlan]:
        """Hand over, once, the kept slices of steps below a stream's released step.

        Slices of fenced generations go too; their later steps were not delivered and are not handed over.
        """
        with self._lock:
            keys = [key for key in self._plans if key[:2] == (progress.run, progress.stream)]
            behind = sorted((k for k in keys if _is_behind(k, progress)), key=lambda key: key.step)
            return [plan for key in behind if (plan := self._pop(key)).step < progress.step]

    def mask(self, ticket: MaterializeTicket, step: int, masked: Sequence[MaskedSample]) -> None:
        """Remember samples of a step that failed since its slice was fetched."""
        with self._lock:
            plan = self._plans.get(_key(ticket, step))
            if plan is not None:
                self._plans[_key(ticket, step)] = replace(plan, masked=(*plan.masked, *masked))

    def _checked(self, ticket: MaterializeTicket, step: int, digest: str) -> StepPlan:
        key = _key(ticket, step)
        with self._lock:
            plan = self._plans.get(key)
        if plan is None or plan.digest != digest:  # a step that was not bound yet may have been planned anew
            self._fetch(ticket, step)
            with self._lock:
                plan = self._plans.get(key)
        if plan is None:
            raise NotReadyError(f"run {ticket.run!r} stream {ticket.stream!r}: step {step} is not planned")
        if plan.digest != digest:
            raise ConflictError(
                f"run {ticket.run!r} stream {ticket.stream!r} generation {ticket.generation}: the plan of step {step} "
                f"must have digest {digest[:16]}, the planner's has {plan.digest[:16]}"
            )
        return plan

    def _look_ahead(self, ticket: MaterializeTicket) -> None:
        """Ask for later steps beside the caller, so that a planner that does not answer holds nothing up."""
        wanted = range(ticket.last_step, ticket.last_step + FETCH_AHEAD)
        with self._lock:
            missing = [step for step in wanted if _key(ticket, step) not in self._plans]
            is_soon = missing and missing[0] < ticket.last_step + LOOK_AHEAD
            if not is_soon or not self._may_ask(ticket):
                return
            self._note_asked(ticket)
        arguments = (ticket, missing[0])
        threading.Thread(target=self._fetch_more, args=arguments, name="slices", daemon=True).start()

    def _may_ask(self, ticket: MaterializeTicket) -> bool:
        asked = self._asked.get(_stream(ticket))
        if asked is None or ticket.last_step >= asked.step + FETCH_AHEAD - LOOK_AHEAD:
            return True
        return time.monotonic() >= asked.at_s + ASK_AGAIN_S

    def _note_asked(self, ticket: MaterializeTicket) -> None:
        """Ask no more for a while: what there was has come, and what there was not is not planned yet."""
        stream = _stream(ticket)
        self._asked = {k: v for k, v in self._asked.items() if k[:2] != stream[:2] or k[2] == stream[2]}
        self._asked[stream] = Asked(ticket.last_step, time.monotonic())

    def _fetch_more(self, ticket: MaterializeTicket, first: int) -> None:
        planner = PlannerClient(self._planner_url, timeout_s=FETCH_DEADLINE_S, tls=self._tls)
        try:
            path, query = _request(ticket, first)
            plans = plans_from_bytes(planner.request("GET", path, query=query))
        except LoadmasterError as error:  # whoever needs the step hears of it
            LOG.debug("slices ahead: %s", error)
            return
        finally:
            planner.close()
        with self._lock:
            for plan in plans:
                if _key(ticket, plan.step) not in self._plans:
                    self._put(_key(ticket, plan.step), plan.of_partitions(ticket.partitions))

    def _fetch(self, ticket: MaterializeTicket, step: int) -> None:
        planner = PlannerClient(self._planner_url, timeout_s=FETCH_DEADLINE_S, tls=self._tls)
        try:
            path, query = _request(ticket, step)
            data = retrying(lambda: planner.request("GET", path, query=query), deadline_s=FETCH_DEADLINE_S)
        finally:
            planner.close()
        with self._lock:
            self._note_asked(ticket)
            for plan in plans_from_bytes(data):
                self._put(_key(ticket, plan.step), plan.of_partitions(ticket.partitions))

    def _put(self, key: SliceKey, plan: StepPlan) -> None:
        if key in self._plans:
            self._pop(key)
        self._plans[key] = plan
        self._num_pieces += len(plan.pieces)
        while self._num_pieces > MAX_PIECES and len(self._plans) > 1:
            self._pop(next(iter(self._plans)))

    def _pop(self, key: SliceKey) -> StepPlan:
        plan = self._plans.pop(key)
        self._num_pieces -= len(plan.pieces)
        return plan


def _request(ticket: MaterializeTicket, first: int) -> tuple[str, dict[str, Any]]:
    """Path and query of the ticket's partitions of steps, those that will be wanted next along with them."""
    path = f"/runs/{ticket.run}/streams/{ticket.stream}/generations/{ticket.generation}/plans"
    partitions = ",".join(":".join(map(str, triple)) for triple in ticket.partitions)
    return path, {"first": first, "last": ticket.last_step + FETCH_AHEAD, "partitions": partitions}


def _stream(ticket: MaterializeTicket) -> SliceKey:
    return _key(ticket, -1)


def _key(ticket: MaterializeTicket, step: int) -> SliceKey:
    partitions = tuple(sorted(_triple(triple) for triple in ticket.partitions))
    return SliceKey(ticket.run, ticket.stream, ticket.generation, partitions, step)


def _triple(values: Sequence[int]) -> tuple[int, int, int]:
    source, k, of = values
    return source, k, of


def _is_behind(key: SliceKey, progress: StreamProgress) -> bool:
    is_delivered = key.generation == progress.generation and key.step < progress.step
    return is_delivered or key.generation < progress.generation
