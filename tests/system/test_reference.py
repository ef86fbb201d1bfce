"""What a step holds must not depend on how the work is spread; the embedded run is the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_server.embedded import EmbeddedRun
from support.ranks import ids_of

STEPS = 100


def ids_by_step(frozen: Any, **options: Any) -> list[list[str]]:
    spec, manifests = frozen
    with EmbeddedRun(spec, manifests, **options) as run:
        names = spec.source_names
        return [sorted(sid for batch in batches.values() for sid in ids_of(batch, names)) for _plan, batches in run]


@pytest.fixture
def reference(frozen: Callable[..., Any]) -> list[list[str]]:
    return ids_by_step(frozen())


@pytest.mark.parametrize(("dp", "workers"), [(1, 4), (2, 1), (4, 4), (8, 2)])
def test_step_ids_when_ranks_and_workers_change_then_same(
    frozen: Callable[..., Any], reference: list[list[str]], dp: int, workers: int
) -> None:
    assert len(reference) == STEPS
    assert ids_by_step(frozen(), dp=dp, workers=workers) == reference


def test_bytes_when_run_twice_then_same(frozen: Callable[..., Any]) -> None:
    first, second = frozen(), frozen()
    with EmbeddedRun(*first, dp=2) as a, EmbeddedRun(*second, dp=2) as b:
        for (plan_a, batches_a), (plan_b, batches_b) in zip(a, b, strict=True):
            assert plan_a.digest == plan_b.digest
            assert batches_a == batches_b


def test_epoch_when_finite_then_every_sample_once(frozen: Callable[..., Any]) -> None:
    spec, manifests = frozen(until={"epochs": 1}, mixture={"weights": {"code": 1, "zipped": 1}})
    counts = Counter(sid for step in ids_by_step((spec, manifests)) for sid in step if ":" not in sid)
    assert set(counts.values()) == {1}
    firsts = set(counts)
    assert len([s for s in firsts if s.startswith("code/")]) == 600
    assert len([s for s in firsts if s.startswith("zipped/")]) == 270
