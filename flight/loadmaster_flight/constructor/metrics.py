"""What a constructor tells Prometheus: read from what it keeps anyway, when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

from loadmaster_flight.telemetry.metrics import MAX_RANKS, STATES, Readings, counter, gauge, histogram
from loadmaster_flight.wire.actor import ActorLink

from .builder import StreamBuilder
from .engine import ConstructorEngine
from .service import ConstructorService

P = "loadmaster_constructor"
BUILD_SECONDS = histogram(
    f"{P}_build_seconds", "Time from a step's plan to its batches; its count is that of steps built.", "run", "stream"
)
ACKNOWLEDGED = gauge(
    f"{P}_steps_acknowledged", "All ranks served here have consumed the steps before it.", "run", "stream"
)
STEPS = gauge(f"{P}_buffered_steps", "Steps that are built and not consumed by all ranks.", "run", "stream")
STEPS_LIMIT = gauge(f"{P}_buffered_steps_limit", "Most steps that are kept: `build_ahead`.", "run", "stream")
BYTES = gauge(f"{P}_buffered_bytes", "Memory of those steps.", "run", "stream")
BYTES_BUDGET = gauge(f"{P}_buffered_bytes_budget", "What they may take: `build_bytes` of the run.", "run", "stream")
RANKS = gauge(f"{P}_ranks", "Ranks served here.", "run", "stream")
RANK_WAIT = histogram(
    f"{P}_rank_wait_seconds", "How long ranks say that they waited for a step, all ranks together.", "run", "stream"
)
RANK_SEEN = gauge(
    f"{P}_rank_seen_seconds",
    "Since a rank was last heard of, where at most 64 are served here.",
    "run",
    "stream",
    "rank",
)
SENT_BYTES = counter(f"{P}_sent_bytes", "Bytes of batches sent to ranks.", "run", "stream")
SENT_BATCHES = counter(f"{P}_sent_batches", "Batches sent to ranks.", "run", "stream")
THREAD_SECONDS = counter(
    f"{P}_thread_seconds", "Seconds of the building thread by what it did; see docs/live.md.", "run", "stream", "state"
)
REFUSALS = counter(f"{P}_refusals", "Calls and streams that ended with an error.", "code")
REGISTERED = gauge(f"{P}_registered", "1 while the planner has answered within the lease, else 0.")
METRICS = (
    *(BUILD_SECONDS, ACKNOWLEDGED, STEPS, STEPS_LIMIT, BYTES, BYTES_BUDGET, RANKS, RANK_WAIT, RANK_SEEN),
    *(SENT_BYTES, SENT_BATCHES, THREAD_SECONDS, REFUSALS, REGISTERED),
)
"""All of a constructor's, in the order of docs/reference/metrics.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstructorParts:
    """What there is to look at."""

    engine: ConstructorEngine
    service: ConstructorService
    link: ActorLink


def read_constructor(parts: ConstructorParts) -> Readings:
    """How a constructor is now. Any thread may call it."""
    readings = Readings()
    for builder in parts.engine.builders():
        _add_stream(readings, builder)
    for code, num in parts.service.refusals().items():
        readings.add(REFUSALS, num, code)
    readings.add(REGISTERED, float(parts.link.has_lease))
    return readings


def _add_stream(readings: Readings, builder: StreamBuilder) -> None:
    stream, found = (builder.assignment.run, builder.assignment.stream), builder.look()
    readings.add(BUILD_SECONDS, builder.build_times.read(), *stream)
    readings.add(RANK_WAIT, builder.wait_times.read(), *stream)
    readings.add(ACKNOWLEDGED, found.acknowledged, *stream)
    readings.add(STEPS, found.num_steps, *stream)
    readings.add(STEPS_LIMIT, found.max_steps, *stream)
    readings.add(BYTES, found.size_bytes, *stream)
    readings.add(BYTES_BUDGET, found.budget_bytes, *stream)
    readings.add(RANKS, len(found.seen_s), *stream)
    readings.add(SENT_BATCHES, found.sent_batches, *stream)
    readings.add(SENT_BYTES, found.sent_bytes, *stream)
    if len(found.seen_s) <= MAX_RANKS:
        for rank, seen_s in found.seen_s.items():
            readings.add(RANK_SEEN, seen_s, *stream, rank)
    seconds = builder.clock.read()
    for kind, state in STATES.items():
        readings.add(THREAD_SECONDS, seconds[kind], *stream, state)
