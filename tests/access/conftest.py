"""Planners that let in more or less."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadmaster_server.access import AccessMode
from loadmaster_server.app import Planner
from loadmaster_server.settings import PlannerSettings
from support.gate import Gate


@pytest.fixture
def make_gate(tmp_path: Path) -> Iterator[Callable[[AccessMode], Gate]]:
    """Planners that let in more or less."""
    with ExitStack() as stack:

        def make(mode: AccessMode, **settings: Any) -> Gate:
            planner = Planner(PlannerSettings(state_dir=tmp_path, access=mode, **settings))
            stack.callback(planner.close)
            return Gate(planner, stack)

        yield make


@pytest.fixture
def local(make_gate: Callable[..., Gate]) -> Gate:
    """A planner as `loadmaster planner` starts it."""
    return make_gate(AccessMode.LOCAL)


@pytest.fixture
def guarded(make_gate: Callable[..., Gate]) -> Gate:
    """A planner that answers nobody who has not said who it is."""
    return make_gate(AccessMode.TOKEN)
