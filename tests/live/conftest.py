"""A planner over HTTP with fakes around it, and a run whose ranks are told what to acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.live_run import LiveRun
from support.synthetic import Cluster


@pytest.fixture
def make_live_run(tmp_path: Path) -> Iterator[Callable[..., LiveRun]]:
    """Starts a planner, a loader, a constructor and a run of some ranks."""
    with ExitStack() as stack:

        def make(world_size: int = 2, **spec: Any) -> LiveRun:
            return LiveRun(Cluster(tmp_path / "state", stack), world_size, spec)

        yield make


@pytest.fixture
def live_run(make_live_run: Callable[..., LiveRun]) -> LiveRun:
    """A run of two ranks."""
    return make_live_run()
