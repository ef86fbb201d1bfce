"""Reads `/metrics` as Prometheus does: with its own parser, and by name and labels."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """One answer.

    Attributes:
        samples: Name of a sample -> its labels and value.
        types: Name of a metric (of a counter, without `_total`) -> its type.
    """

    samples: dict[str, list[tuple[dict[str, str], float]]]
    types: dict[str, str]

    def all(self, name: str, **labels: str) -> list[float]:
        """Values of the samples that have these labels."""
        return [value for found, value in self.samples.get(name, []) if labels.items() <= found.items()]

    def one(self, name: str, **labels: str) -> float:
        """The value of the only sample that has these labels."""
        (value,) = self.all(name, **labels)
        return value

    def labels(self, name: str, label: str) -> set[str]:
        """The values that a label has."""
        return {found[label] for found, _ in self.samples.get(name, [])}


def parsed(text: str) -> Scraped:
    """What an answer says."""
    samples: defaultdict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    types: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        types[family.name] = family.type
        for sample in family.samples:
            samples[sample.name].append((dict(sample.labels), sample.value))
    return Scraped(samples=dict(samples), types=types)


def scrape(url: str, *, token: str = "", accept: str = "") -> Scraped:
    """Ask once, as Prometheus 2 does."""
    headers = ({"authorization": f"Bearer {token}"} if token else {}) | ({"accept": accept} if accept else {})
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
        return parsed(answer.read().decode())
