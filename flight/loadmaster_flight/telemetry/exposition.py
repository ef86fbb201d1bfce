"""Readings as Prometheus reads them: the one place that knows its client library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from .distribution import Distribution
from .metrics import Kind, Metric, Readings, Value, gauge

BUILD_INFO = gauge("loadmaster_build_info", "Always 1; says who answers.", "version", "role")
Series = Mapping[tuple[str, ...], Value]


class Exposition:
    """What a process answers to a scrape. Any thread may call it.

    Args:
        role: planner, loader or constructor.
        collect: Looks at the process; called for each scrape, never otherwise.
    """

    def __init__(self, role: str, collect: Callable[[], Readings]) -> None:
        self._role, self._collect = role, collect
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Adapter(self._readings))
        ProcessCollector(registry=self.registry)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """A page and its content type.

        Args:
            accept: The request's header of that name: Prometheus asks for one of two text formats.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _readings(self) -> Readings:
        readings = self._collect()
        readings.add(BUILD_INFO, 1.0, version("loadmaster"), self._role)
        return readings


class _Adapter(Collector):
    def __init__(self, collect: Callable[[], Readings]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Family]:
        return [_family(metric, series) for metric, series in self._collect()]

    def describe(self) -> Iterator[Family]:
        """Nothing: the registry would look at the process to know the names."""
        return iter(())


def _family(metric: Metric, series: Series) -> Family:
    if metric.kind is Kind.HISTOGRAM:
        return _histogram(metric, series)
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = make(metric.name, metric.about, labels=metric.labels)
    for labels, value in series.items():
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, series: Series) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.about, labels=metric.labels)
    for labels, value in series.items():
        assert isinstance(value, Distribution)
        bounds = [*map(str, value.bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
    return family
