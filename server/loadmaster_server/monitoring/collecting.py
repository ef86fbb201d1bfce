"""Reads a planner for Prometheus: nothing is counted for it that is not kept anyway.

# W = ranks
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from loadmaster_flight.telemetry import Readings
from loadmaster_flight.telemetry.metrics import MAX_RANKS, STATES
from loadmaster_flight.wire.control import ActorView, Role
from loadmaster_flight.wire.errors import NotFoundError
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.stages import StageClock
from loadmaster_flight.wire.waiting import SILENT_S

from ..live.ranks import RankBoards
from ..live.step_log import StepLog, StepNumbers
from ..plans import Counters
from ..runs import RankWatch
from ..store import GenerationRecord, GenerationState, LeaseKind, Store, StreamKey, VerdictKind
from ..store.steps import StepRepository
from . import definitions as d

MAX_STREAMS = 64
"""Of these the ones that opened last are told of."""
STREAM_STATES = (GenerationState.OPEN, GenerationState.PAUSED, GenerationState.FAILED, GenerationState.ENDED)
LEAVING, SILENT, LIVE = "leaving", "silent", "live"
LOG_PARTS = {
    "bodies": ("plan_body_bytes", "plan_bodies"),
    "intervals": ("plan_interval_bytes", ""),
    "segments": ("segment_bytes", "segments"),
    "checkpoints": ("checkpoint_bytes", "checkpoints"),
}
"""Value of the label `part` -> names in the store's own sizes, of bytes and entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a planner has to look at.

    Attributes:
        log: Numbers of logged steps.
        boards: How ranks are, by column.
        watch: Which of them are waited for.
        actors: Who is alive.
        leaving: Which of those are about to end.
        clocks: How plan loops spend their time.
        events: What the event streams count.
        refusals: Requests that were refused, by code.
    """

    store: Store
    log: StepLog
    boards: RankBoards
    watch: RankWatch
    counters: Counters
    actors: Callable[[], list[ActorView]]
    leaving: Callable[[], set[str]]
    clocks: Callable[[], Mapping[StreamKey, StageClock]]
    events: Callable[[], dict[str, float]]
    refusals: Callable[[], dict[str, int]]


class PlannerCollector:
    """Makes the readings of one scrape. Any thread may call it."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._steps = StepRepository(seen.store.database)

    def read(self) -> Readings:
        """How the planner and its streams are now."""
        readings = Readings()
        for generation in self._generations():
            try:
                self._add_stream(readings, generation)
            except NotFoundError:
                continue  # the run was deleted meanwhile
        for key, clock in self._seen.clocks().items():
            for kind, seconds in clock.read().items():
                readings.add(d.LOOP_SECONDS, seconds, key.run, key.stream, STATES[kind])
        self._add_log(readings)
        self._add_actors(readings)
        readings.add_each(d.EVENTS, self._seen.events())
        for code, num in self._seen.refusals().items():
            readings.add(d.REFUSALS, num, code)
        return readings

    def _generations(self) -> list[GenerationRecord]:
        """Those of runs that somebody works with."""
        active = set(self._seen.store.runs.active_names())
        found = [generation for generation in self._seen.store.generations.current() if generation.key.run in active]
        return sorted(found, key=lambda generation: generation.opened_at)[-MAX_STREAMS:]

    def _add_stream(self, readings: Readings, generation: GenerationRecord) -> None:
        key = generation.key.stream_key
        stream = (key.run, key.stream)
        for metric, value in (
            (d.PLANNED, generation.planned),
            (d.BOUND, generation.bound),
            (d.ACKNOWLEDGED, generation.acknowledged),
            (d.END_STEP, generation.end_step),
            (d.GENERATION, generation.key.generation),
            (d.RANKS, generation.world_size),
        ):
            readings.add(metric, value, *stream)
        for state in STREAM_STATES:
            readings.add(d.STATE, float(state is generation.state), *stream, state.value)
        timeline = self._seen.store.schedules.timeline(key.run)
        readings.add(d.REVISION, timeline.at(generation.acknowledged).number, *stream)
        readings.add(d.RUN_REVISION, timeline.newest.number, key.run)
        counts = self._seen.counters.of(key)
        readings.add(d.QUEUE, counts.queue_tokens, *stream)
        readings.add(d.PLANNING, counts.planning.read(), *stream)
        self._add_trained(readings, generation)
        self._add_ranks(readings, generation)
        self._add_checkpoint(readings, key)

    def _add_trained(self, readings: Readings, generation: GenerationRecord) -> None:
        """What the acknowledged steps hold, and what was left out on the way."""
        key = generation.key.stream_key
        names = self._seen.store.runs.definition(key.run).spec.source_names
        numbers = self._seen.log.one(generation, generation.acknowledged - 1) if generation.acknowledged else None
        _add_numbers(readings, key, numbers, names)
        for verdict, count in self._seen.store.verdicts.left_out(key):
            kind = "masked" if verdict.kind is VerdictKind.MASKED else Verdict(verdict.verdict).name.lower()
            readings.add(d.LEFT_OUT, count, key.run, key.stream, names[verdict.source], kind)

    def _add_ranks(self, readings: Readings, generation: GenerationRecord) -> None:
        stream = (generation.key.run, generation.key.stream)
        views = self._seen.watch.views(generation.key) if generation.state is GenerationState.OPEN else []
        tally = Tally(view.state for view in views)
        for state in ("behind", "silent", "left"):
            readings.add(d.AWAITED, tally[state], *stream, state)
        readings.add(d.AWAITED_RANK, views[0].rank if views else -1, *stream)
        found = self._seen.boards.snapshot(generation.key, generation.world_size)
        wait_W = found.last_wait_W[: generation.world_size]
        known_W = wait_W[~np.isnan(wait_W)]
        if len(known_W):
            readings.add(d.WAIT, float(known_W.max()), *stream, "max")
            readings.add(d.WAIT, float(known_W.mean()), *stream, "mean")
        if generation.world_size > MAX_RANKS:
            return
        for rank in np.flatnonzero(found.is_heard_W).tolist():
            readings.add(d.RANK_ACKNOWLEDGED, int(found.acknowledged_W[rank]), *stream, rank)
            readings.add(d.RANK_SEEN, float(found.seen_s_W[rank]), *stream, rank)
            readings.add(d.RANK_WAIT, _known(found.last_wait_W[rank]), *stream, rank)

    def _add_checkpoint(self, readings: Readings, key: StreamKey) -> None:
        head = next(iter(self._steps.checkpoints(key, leave_out=0, limit=1)), None)
        if head is not None:
            readings.add(d.CHECKPOINT_SIZE, head.size_bytes, key.run, key.stream)
            readings.add(d.CHECKPOINT_STEP, head.step, key.run, key.stream)
            readings.add(d.CHECKPOINT_TIME, head.written_at, key.run, key.stream)

    def _add_log(self, readings: Readings) -> None:
        sizes = self._seen.store.archive.sizes()
        for part, (num_bytes, num) in LOG_PARTS.items():
            readings.add(d.LOG_BYTES, sizes[num_bytes], part)
            readings.add(d.LOG_ENTRIES, sizes.get(num), part)
        readings.add(d.ENCODING, self._seen.counters.encoding.read())
        readings.add_each(d.COUNTED, self._seen.counters.read())

    def _add_actors(self, readings: Readings) -> None:
        views, leaving = self._seen.actors(), self._seen.leaving()
        tally = Tally((view.role, _state_of(view, leaving)) for view in views)
        for role in Role:
            for state in (LIVE, SILENT, LEAVING):
                readings.add(d.ACTORS, tally[role, state], role.value, state)
            ages = [view.heartbeat_age_s for view in views if view.role is role]
            readings.add(d.HEARTBEAT_AGE, max(ages, default=None), role.value)
        held = self._seen.store.actors.num_leases()
        for kind in LeaseKind:
            for holder, is_standby in (("owner", False), ("standby", True)):
                readings.add(d.LEASES, held.get((kind, is_standby), 0), kind.value, holder)


def _add_numbers(readings: Readings, key: StreamKey, numbers: StepNumbers | None, names: list[str]) -> None:
    """Of the newest acknowledged step, and up to it."""
    stream = (key.run, key.stream)
    if numbers is None:
        readings.add(d.TOKENS, 0, *stream)
        return
    readings.add(d.TOKENS, int(numbers.total_tokens_S.sum()), *stream)
    readings.add(d.FILL, numbers.fill, *stream)
    readings.add(d.SKEW, numbers.skew, *stream)
    columns = (numbers.total_tokens_S.tolist(), numbers.weights_S.tolist())
    for name, tokens, weight in zip(names, *columns, strict=False):  # sources that came later are not in it
        readings.add(d.SOURCE_TOKENS, tokens, *stream, name)
        readings.add(d.SOURCE_WEIGHT, weight, *stream, name)


def _state_of(view: ActorView, leaving: set[str]) -> str:
    if view.actor_id in leaving:
        return LEAVING
    return SILENT if view.heartbeat_age_s >= SILENT_S else LIVE


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
