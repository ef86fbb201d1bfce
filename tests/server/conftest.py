"""A planner over HTTP, and requests for runs over synthetic sources."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.wire.control import CreateRunRequest
from support.synthetic import Cluster, synthetic_manifest


@pytest.fixture
def make_cluster(tmp_path: Path, sqlite_schema: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts planners with the fakes around them."""
    with ExitStack() as stack:
        state = tmp_path / "state"
        state.mkdir()
        shutil.copy(sqlite_schema, state)
        yield lambda **kwargs: Cluster(state, stack, **kwargs)


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A planner without any process around it yet."""
    return make_cluster()


@pytest.fixture
def make_run() -> Callable[..., CreateRunRequest]:
    """Requests for runs over synthetic sources `web` (share 0.75) and `code`, and `names` without any share."""

    def make(
        run: str = "run",
        *,
        source: dict[str, Any] | None = None,
        names: tuple[str, ...] = ("web", "code"),
        **spec: Any,
    ) -> CreateRunRequest:
        sources = {n: {"uri": f"{n}.jsonl", "transform": {"text": "text"}, **(source or {})} for n in names}
        tree: dict[str, Any] = {
            "run": run,
            "sources": sources,
            "mixture": {"weights": {"web": 3, "code": 1}},
            "batch": {"seq_len": 64, "microbatches": 4},
            "budgets": {"plan_ahead": 12, "bind_ahead": 4, "build_ahead": 2},
        }
        return CreateRunRequest(
            spec=tree | spec, manifests=[synthetic_manifest(i, name) for i, name in enumerate(sources)]
        )

    return make
