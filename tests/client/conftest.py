"""A planner, a constructor and streams, all closed at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import loadmaster
from loadmaster_flight.constructor.process import ConstructorProcess
from support.services import FakePlanner, wait_until


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_planner(stack: ExitStack) -> Callable[..., FakePlanner]:
    return lambda **options: stack.enter_context(FakePlanner(**options))


@pytest.fixture
def make_constructor(stack: ExitStack) -> Callable[[FakePlanner], ConstructorProcess]:
    def make(planner: FakePlanner) -> ConstructorProcess:
        process = stack.enter_context(ConstructorProcess(planner.url))
        wait_until(lambda: process.service.address in planner.constructors.values(), "registration")
        return process

    return make


@pytest.fixture
def connect(stack: ExitStack) -> Callable[..., loadmaster.Stream]:
    def open_stream(planner: FakePlanner, **options: Any) -> loadmaster.Stream:
        options = {"framework": "numpy", "timeout_s": 20.0, "rank": 0, "world_size": planner.world_size} | options
        return stack.enter_context(loadmaster.connect(planner.url, **options))

    return open_stream


@pytest.fixture
def reader_threads() -> Callable[[], list[str]]:
    before = set(threading.enumerate())
    return lambda: [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("loadmaster-") and thread not in before
    ]
