"""Real processes on real files: whatever is spread over however many of them, every step holds the same samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadmaster.digest import record_digest
from loadmaster_server.embedded import EmbeddedRun
from support.ranks import Stutter, fetch_all, ids_of, ids_per_step

pytestmark = pytest.mark.processes
STEPS = 100

# A covering set: every value of every factor, and every pair with the number of ranks, meets at least once.
SPREADS = [
    {"ranks": 1, "loaders": 1, "constructors": 1, "workers": 1},
    {"ranks": 2, "loaders": 3, "constructors": 2, "workers": 4},
    {"ranks": 4, "loaders": 3, "constructors": 1, "workers": 1},
    {"ranks": 4, "loaders": 1, "constructors": 2, "workers": 4},
    {"ranks": 8, "loaders": 3, "constructors": 2, "workers": 1},
]


@pytest.fixture
def reference(frozen: Callable[..., Any]) -> list[list[str]]:
    spec, manifests = frozen()
    with EmbeddedRun(spec, manifests) as run:
        return [sorted(ids_of(batches[0], spec.source_names)) for _plan, batches in run]


@pytest.mark.parametrize("spread", SPREADS, ids=lambda s: "-".join(f"{k}{v}" for k, v in s.items()))
def test_step_ids_when_spread_and_delayed_then_same(
    frozen: Callable[..., Any],
    start_cluster: Callable[..., Any],
    reference: list[list[str]],
    spread: dict[str, int],
) -> None:
    size = {name: spread[name] for name in ("loaders", "constructors", "workers")}
    cluster = start_cluster(*frozen(), **size)
    with Stutter(list(cluster.pids().values()), seed=sum(spread.values())):
        ranks = fetch_all(cluster.url, world_size=spread["ranks"], jitter_s=0.01)
    assert len(reference) == STEPS
    assert ids_per_step(ranks) == reference


def test_bytes_when_distributed_then_equal_to_embedded(
    frozen: Callable[..., Any], start_cluster: Callable[..., Any]
) -> None:
    spec, manifests = frozen()
    with EmbeddedRun(spec, manifests, dp=2) as run:
        expected = [[record_digest(batches[rank]) for rank in range(2)] for _plan, batches in run]
    cluster = start_cluster(spec, manifests, loaders=2, constructors=2)
    ranks = fetch_all(cluster.url, world_size=2)
    assert [[f.digest for f in pair] for pair in zip(*ranks, strict=True)] == expected
