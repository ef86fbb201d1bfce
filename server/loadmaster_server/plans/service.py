"""Hands plans out: waits for them, binds them, slices them."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace

from loadmaster_flight.wire.errors import BadRequestError, from_code
from loadmaster_flight.wire.step_plan import StepPlan, plans_to_bytes
from loadmaster_flight.wire.tracing import StepPlace, is_tracing, record_step

from ..store import GenerationKey, GenerationRecord, GenerationState, PlanRecord, Store
from .query import PlanQuery
from .shelf import PlanShelf


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """An Arrow IPC stream of plans. `end_step` is the stream's exclusive end, None while it is not planned, or may
    still change (`is_binding`: while the last step is not bound)."""

    body: bytes
    etag: str
    end_step: int | None


class PlanService:
    """Reads the plan log for constructors and loaders. Any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shelf = PlanShelf()

    def read(self, key: GenerationKey, query: PlanQuery) -> PlanAnswer:
        """The planned steps of [first, last), from `first` on without a gap; none when waiting did not help.

        With `is_binding` only bound steps come, and they are bound in SQL before this returns: at most `bind_ahead`
        steps beyond what all ranks have acknowledged.

        Raises:
            NotFoundError: There is no such generation.
            GoneError: It is fenced.
            BadRequestError: `first` lies before the generation.
            LoadmasterError: Nothing is there, and planning has stopped: what stopped it.
        """
        generation, records = self._wait(key, query)
        masked = self._store.verdicts.masked(key.stream_key, query.first, query.last) if records else {}
        plans = [query.slice(self._shelf.decode(key, record)) for record in records]
        plans = [replace(plan, masked=masked.get(plan.step, ())) for plan in plans]
        return PlanAnswer(body=plans_to_bytes(plans), etag=_etag(plans, query), end_step=_end(generation, query))

    def _wait(self, key: GenerationKey, query: PlanQuery) -> tuple[GenerationRecord, list[PlanRecord]]:
        until, topic = time.monotonic() + query.wait_s, str(key.stream_key)
        while True:
            seen = self._store.bulletin.seen(topic)
            generation = self._reach(key, query)
            records = self._store.plans.read(key, query.first, min(query.last, _reached(generation, query)))
            if records or _is_over(generation, query):
                return generation, records
            _check_going_on(generation, query)
            left_s = until - time.monotonic()
            if left_s <= 0 or not self._store.bulletin.wait(topic, seen, left_s):
                return generation, []

    def _reach(self, key: GenerationKey, query: PlanQuery) -> GenerationRecord:
        generation = self._store.generations.unfenced(key)
        if query.first < generation.first_step:
            raise BadRequestError(f"first must be at least {generation.first_step} in {key}, got {query.first}")
        if not query.is_binding:
            return generation
        bind_ahead = self._store.runs.definition(key.run).spec.budgets.bind_ahead
        through = min(query.last, generation.planned, generation.skip.ahead(generation.acknowledged, bind_ahead))
        return self._bind(key, generation.bound, through) if through > generation.bound else generation

    def _bind(self, key: GenerationKey, bound: int, through: int) -> GenerationRecord:
        start_ns = time.time_ns()
        generation = self._store.generations.bind(key, through)
        if is_tracing():
            for step in range(bound, through):
                record_step("bind", StepPlace(key.run, key.stream, key.generation, step), start_ns)
        return generation


def _reached(generation: GenerationRecord, query: PlanQuery) -> int:
    return generation.bound if query.is_binding else generation.planned


def _end(generation: GenerationRecord, query: PlanQuery) -> int | None:
    """Where the stream ends, as soon as that cannot change for who asks: a revision may take a final step back."""
    end = generation.end_step
    return end if end is not None and end <= _reached(generation, query) else None


def _is_over(generation: GenerationRecord, query: PlanQuery) -> bool:
    end = _end(generation, query)
    return end is not None and query.first >= end


def _check_going_on(generation: GenerationRecord, query: PlanQuery) -> None:
    """Ranks learn why there is no plan: from the answer to the constructor that asks for it."""
    if generation.state in (GenerationState.PAUSED, GenerationState.FAILED) and query.first >= generation.planned:
        raise from_code(generation.code, generation.reason)


def _etag(plans: list[StepPlan], query: PlanQuery) -> str:
    asked = (sorted(query.dp_ranks or ()), sorted(query.encoder_ranks), sorted(query.partitions or ()))
    h = hashlib.sha256(repr(asked).encode())
    for plan in plans:
        h.update(plan.digest.encode() + repr(plan.masked).encode())
    return f'"{h.hexdigest()}"'
