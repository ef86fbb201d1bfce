"""What a loader tells Prometheus: read from what it keeps anyway, when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

from ..telemetry.metrics import STATES, Readings, counter, gauge
from ..wire.actor import ActorLink
from .crashes import CrashRecord
from .engine import LoaderEngine
from .runs import OpenRuns
from .service import LoaderService
from .shadow import Shadows

P = "loadmaster_loader"
OF_RUN = {
    "rows_measured": counter(f"{P}_rows_measured", "Rows measured, those included that were measured again.", "run"),
    "tokens_measured": counter(f"{P}_tokens_measured", "Tokens of measured rows.", "run"),
    "pieces_sent": counter(f"{P}_pieces_sent", "Pieces of planned steps that were materialized.", "run"),
    "window_bytes": gauge(f"{P}_window_bytes", "Measured samples that are held.", "run"),
    "window_evictions": counter(f"{P}_window_evictions", "Chunks dropped before they were delivered.", "run"),
    "decoded_bytes": gauge(f"{P}_decoded_bytes", "Decoded images, frames and sound that are held.", "run"),
    "shelf_bytes": gauge(f"{P}_shelf_bytes", "Blocks of files that are held.", "run"),
    "sources_open": gauge(f"{P}_open_sources", "Sources that are open.", "run"),
}
OF_SERVICE = {
    "bytes_sent": counter(f"{P}_sent_bytes", "Bytes of pieces sent to constructors."),
    "steps_sent": counter(f"{P}_sent_steps", "Parts of steps sent to constructors."),
    "measures": counter(f"{P}_measures", "Requests of the planner for metadata."),
    "streams": counter(f"{P}_streams", "Requests of constructors for pieces."),
    "masked_pieces": counter(f"{P}_masked_pieces", "Pieces served without loss: their content is broken."),
}
OF_SHADOWS = {
    "shadow_partitions": gauge(f"{P}_shadow_partitions", "Partitions that it stands by for."),
    "shadow_steps": gauge(f"{P}_shadow_steps", "Coming steps of those that are in memory, of the run that has fewest."),
    "shadow_bytes": gauge(f"{P}_shadow_bytes", "What standing by takes, on top of the window's budget."),
    "shadow_failures": counter(f"{P}_shadow_failures", "Tries to keep partitions warm that failed."),
}
WINDOW_BUDGET = gauge(f"{P}_window_budget_bytes", "What the window may hold, with what standing by takes.", "run")
OPEN_RUNS = gauge(f"{P}_open_runs", "Runs that are open.")
WORKER_SECONDS = counter(
    f"{P}_worker_seconds", "Seconds of all workers by what they did; see docs/live.md.", "run", "state"
)
LEFT_OUT = counter(
    f"{P}_rows_left_out", "Measured rows that are not OK; rows measured again count again.", "run", "source", "verdict"
)
READ_BLOCKS = counter(f"{P}_read_blocks", "Blocks read.", "run", "source")
READ_BYTES = counter(f"{P}_read_bytes", "Bytes of the blocks read, in memory.", "run", "source")
READ_ERRORS = counter(f"{P}_read_errors", "Reads that failed for good.", "run", "source")
READ_RETRIES = counter(f"{P}_read_retries", "Tries to read that failed and were made again.", "run", "source")
READ_SECONDS = gauge(
    f"{P}_read_seconds", "Time of the last 256 reads, waits between tries included.", "run", "source", "quantile"
)
CRASHES = gauge(f"{P}_decode_crashes", "Processes known to have died while they decoded a sample.")
SUSPECTS = gauge(f"{P}_suspect_samples", "Samples that are opened in a process of their own for it.")
REFUSALS = counter(f"{P}_refusals", "Calls and streams that ended with an error.", "code")
REGISTERED = gauge(f"{P}_registered", "1 while the planner has answered within the lease, else 0.")
METRICS = (
    *(*OF_RUN.values(), WINDOW_BUDGET, WORKER_SECONDS, LEFT_OUT),
    *(READ_BLOCKS, READ_BYTES, READ_ERRORS, READ_RETRIES, READ_SECONDS, OPEN_RUNS),
    *(*OF_SERVICE.values(), *OF_SHADOWS.values(), CRASHES, SUSPECTS, REFUSALS, REGISTERED),
)
"""All of a loader's, in the order of docs/reference/metrics.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderParts:
    """What there is to look at."""

    runs: OpenRuns
    service: LoaderService
    shadows: Shadows
    link: ActorLink
    crashes: CrashRecord | None


def read_loader(parts: LoaderParts) -> Readings:
    """How a loader is now. Any thread may call it."""
    readings, engines = Readings(), parts.runs.engines()
    for run, engine in engines.items():
        _add_run(readings, run, engine)
    readings.add(OPEN_RUNS, len(engines))
    readings.add_each(OF_SERVICE, parts.service.counts())
    readings.add_each(OF_SHADOWS, parts.shadows.stats())
    if parts.crashes is not None:
        suspects, deaths = parts.crashes.counts()
        readings.add(SUSPECTS, suspects)
        readings.add(CRASHES, deaths)
    for code, num in parts.service.refusals().items():
        readings.add(REFUSALS, num, code)
    readings.add(REGISTERED, float(parts.link.has_lease))
    return readings


def _add_run(readings: Readings, run: str, engine: LoaderEngine) -> None:
    stats = engine.stats()
    readings.add_each(OF_RUN, stats, run)
    readings.add(WINDOW_BUDGET, engine.window_budget_bytes(), run)
    for kind, state in STATES.items():
        readings.add(WORKER_SECONDS, stats[kind], run, state)
    for (source, verdict), num in engine.left_out().items():
        readings.add(LEFT_OUT, num, run, source, verdict)
    for source, read in engine.readings().items():
        readings.add(READ_BLOCKS, read.reads, run, source)
        readings.add(READ_BYTES, read.read_bytes, run, source)
        readings.add(READ_ERRORS, read.errors, run, source)
        readings.add(READ_RETRIES, read.retries, run, source)
        readings.add(READ_SECONDS, read.p50_ms / 1e3, run, source, "0.5")
        readings.add(READ_SECONDS, read.p99_ms / 1e3, run, source, "0.99")
