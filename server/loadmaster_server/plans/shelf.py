"""A small shelf of decoded plans: every process asks for its own slice of the same steps at about the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict

from loadmaster_flight.wire.step_plan import StepPlan, plans_from_bytes

from ..store import GenerationKey, PlanRecord

CAPACITY_PIECES = 1 << 20  # pieces of all plans on the shelf together, about 72 bytes each
CAPACITY_PLANS = 512  # whatever their size: a plan of few pieces still takes some 4 kB


class PlanShelf:
    """Decodes plan bodies and keeps those used last. Any thread may use it."""

    def __init__(self, *, capacity_pieces: int = CAPACITY_PIECES, capacity_plans: int = CAPACITY_PLANS) -> None:
        self._capacity_pieces, self._capacity_plans = capacity_pieces, capacity_plans
        self._plans: OrderedDict[tuple[GenerationKey, int, str], StepPlan] = OrderedDict()
        self._num_pieces = 0
        self._lock = threading.Lock()

    def decode(self, key: GenerationKey, record: PlanRecord) -> StepPlan:
        """The whole plan of one step."""
        place = key, record.step, record.digest  # a plan that is not bound may be another one later
        with self._lock:
            plan = self._plans.get(place)
            if plan is not None:
                self._plans.move_to_end(place)
                return plan
        plan = plans_from_bytes(record.body)[0]
        with self._lock:
            if place not in self._plans:
                self._plans[place] = plan
                self._num_pieces += len(plan.pieces)
            while self._is_too_full() and len(self._plans) > 1:
                self._num_pieces -= len(self._plans.popitem(last=False)[1].pieces)
        return plan

    def __len__(self) -> int:
        return len(self._plans)

    def _is_too_full(self) -> bool:
        return self._num_pieces > self._capacity_pieces or len(self._plans) > self._capacity_plans
