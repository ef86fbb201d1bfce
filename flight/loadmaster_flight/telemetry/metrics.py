"""Metrics as they are defined, documented and read; nothing here knows how they are written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..wire.stages import BLOCKED, BUSY, IDLE
from .distribution import Distribution

MAX_RANKS = 64
"""Of streams with more ranks no series is told by rank."""
MAX_SERIES = 2048
"""Of a metric by source; what would be more is told together: sums, but of times the longest."""
SOURCE, OTHERS = "source", "(others)"
STATES = {BUSY: "busy", BLOCKED: "blocked", IDLE: "idle"}
"""What a stage of the data plane did with its time -> value of the label `state`."""
Value = float | Distribution


class Kind(StrEnum):
    """counter: only grows while its process lives. gauge: as it is now. histogram: counts by upper bound, and a sum."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One name that a process tells numbers under.

    Attributes:
        name: As Prometheus knows it; a counter ends in `_total`, and a unit is in the name.
        about: What it is, in one sentence.
        labels: Names of the labels; docs/reference/metrics.md says what each can be.
    """

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.name.endswith("_total") == (self.kind is Kind.COUNTER), f"a counter ends in _total: {self.name}"


class Readings:
    """The numbers of one look. Used by one thread."""

    def __init__(self) -> None:
        self._found: dict[Metric, dict[tuple[str, ...], Value]] = {}

    def add(self, metric: Metric, value: Value | None, *labels: object) -> None:
        """Tell a number; None: it is not known, and left out.

        Args:
            labels: Values of the metric's labels, in order.
        """
        assert len(labels) == len(metric.labels), f"{metric.name} has the labels {metric.labels}, got {labels}"
        if value is None:
            return
        series, place = self._found.setdefault(metric, {}), tuple(map(str, labels))
        if SOURCE in metric.labels and len(series) >= MAX_SERIES and place not in series:
            place = tuple(OTHERS if name == SOURCE else label for name, label in zip(metric.labels, place, strict=True))
            value = _folded(metric, series.get(place, 0.0), value)
        series[place] = value

    def add_each(self, metrics: Mapping[str, Metric], stats: Mapping[str, float], *labels: object) -> None:
        """Tell those of `stats` that have a metric under their name."""
        for name, metric in metrics.items():
            self.add(metric, stats.get(name), *labels)

    def __iter__(self) -> Iterator[tuple[Metric, Mapping[tuple[str, ...], Value]]]:
        return iter(self._found.items())


def counter(name: str, about: str, *labels: str) -> Metric:
    """A counter; `_total` is added to its name."""
    return Metric(name=f"{name}_total", kind=Kind.COUNTER, about=about, labels=labels)


def gauge(name: str, about: str, *labels: str) -> Metric:
    """A gauge."""
    return Metric(name=name, kind=Kind.GAUGE, about=about, labels=labels)


def histogram(name: str, about: str, *labels: str) -> Metric:
    """A histogram."""
    return Metric(name=name, kind=Kind.HISTOGRAM, about=about, labels=labels)


def _folded(metric: Metric, before: Value, value: Value) -> float:
    assert not isinstance(before, Distribution)
    assert not isinstance(value, Distribution)
    return max(before, value) if metric.name.endswith("_seconds") else before + value
