"""Writes docs/reference/metrics.md from the metrics that processes define.

python docs/site/metrics_reference.py            write it
python docs/site/metrics_reference.py --check    fail when it is stale
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadmaster_flight.constructor import metrics as constructor
from loadmaster_flight.loader import metrics as loader
from loadmaster_flight.telemetry.exposition import BUILD_INFO
from loadmaster_flight.telemetry.metrics import MAX_RANKS, MAX_SERIES, OTHERS, Metric
from loadmaster_server import monitoring
from loadmaster_server.monitoring.collecting import MAX_STREAMS

PAGE = Path(__file__).parents[1] / "reference" / "metrics.md"
HEAD = f"""\
# Metrics

Generated from the definitions by `docs/site/metrics_reference.py`. [Observe it](../how-to/observe-it.md) says how to
have them scraped. `GET /metrics` answers in the text format of Prometheus, or in OpenMetrics where that is asked for.

Steps and tokens of a stream are gauges: going on from an earlier step takes them back, so use `deriv()` or `delta()`,
not `rate()`. A histogram has `_bucket`, `_sum` and `_count`. What is not known is left out, not zero; a stream whose
ranks have yet to join again is left out too.

The number of series is bounded: streams of more than {MAX_RANKS} ranks have none by rank, the planner tells of the
{MAX_STREAMS} streams that opened last, and beyond {MAX_SERIES:,} series of a metric by source the rest is one series of
the source `{OTHERS}`.
"""
TABLE = "| metric | type | labels | what it is |\n| --- | --- | --- | --- |"
ROLES: tuple[tuple[str, str, Sequence[Metric]], ...] = (
    ("Planner", "At `/metrics` of its HTTP address. One that stands by answers 503.", monitoring.METRICS),
    ("Loader", "At `--metrics-port`. Those without the label `run` are of all runs.", loader.METRICS),
    (
        "Constructor",
        "At `--metrics-port`. Those of a stream begin anew with each generation.",
        constructor.METRICS,
    ),
)
EVERY = """\
## Every process

`loadmaster_build_info` is 1 and says `version` and `role`. On Linux there are also `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_open_fds`, `process_max_fds` and
`process_start_time_seconds`, as of any program with a Prometheus client.

## Labels

| label | values |
| --- | --- |
"""
LABELS = {
    "run, stream, source, rank": "names as in the run spec; global ranks",
    "state": "of a stream: `open`, `paused`, `failed`, `ended`; of actors: `live`, `silent` (5 s without a "
    "heartbeat), `leaving`; of ranks: `behind`, `silent`, `left`; of threads: `busy`, `blocked`, `idle`",
    "verdict": "`bad`, `skipped`, `masked`",
    "of": "`max`, `mean`",
    "part": "`bodies` and `intervals` in SQL, `segments` at the storage URI, `checkpoints`",
    "role": "`loader`, `constructor`; of `loadmaster_build_info` also `planner`",
    "kind": "`partition` (of a source), `dp` (a rank of a stream)",
    "holder": "`owner`, `standby`",
    "quantile": "`0.5`, `0.99`",
    "code": "an error code, such as `GONE` or `UNAUTHENTICATED`; `NOT_READY`, `MOVED` and `BUSY` are asked again by "
    "themselves",
}


def all_metrics() -> list[Metric]:
    """Of all roles."""
    return [BUILD_INFO, *(metric for _, _, metrics in ROLES for metric in metrics)]


def page() -> str:
    """The whole page."""
    labels = "\n".join(f"| {name} | {text} |" for name, text in LABELS.items())
    return "\n".join([HEAD, *_sections(), EVERY + labels, ""])


def _sections() -> Iterator[str]:
    for title, where, metrics in ROLES:
        yield f"## {title}\n\n{where}\n\n{TABLE}"
        for metric in metrics:
            labels = ", ".join(metric.labels) or "none"
            about = metric.about.replace("docs/live.md", "[how a run is now](../live.md)")
            yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {about} |"
        yield ""


def unlabelled() -> list[str]:
    """Labels that the page does not explain."""
    explained = {name for names in LABELS for name in names.split(", ")} | {"version"}
    return sorted({label for metric in all_metrics() for label in metric.labels} - explained)


def main(argv: list[str]) -> int:
    """Write or check; returns the exit code."""
    if missing := unlabelled():
        print(f"labels without an explanation: {', '.join(missing)}", file=sys.stderr)
        return 1
    text = page()
    if "--check" not in argv:
        PAGE.write_text(text, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != text:
        print(f"{PAGE.name} is stale: python docs/site/metrics_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
