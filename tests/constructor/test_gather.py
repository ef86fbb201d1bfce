"""Which loaders are asked for what."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow.flight as fl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.constructor.asking import shadows_of
from loadmaster_flight.constructor.gather import Gatherer, needed_partitions
from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.control import Assignment, LoaderRoute
from loadmaster_flight.wire.errors import MovedError, NotReadyError, UnavailableError
from loadmaster_flight.wire.flight import FlightService
from loadmaster_flight.wire.step_plan import StepPlan
from support.services import KEY, FakeLoader, FakePlanner, plan_at

ALL = [[0, 0, 1], [1, 0, 1]]


def spread(num_loaders: int, num_partitions: int) -> list[LoaderRoute]:
    """Partitions of two sources, dealt in turn."""
    owned: list[list[list[int]]] = [[] for _ in range(num_loaders)]
    for i in range(2 * num_partitions):
        owned[i % num_loaders].append([i // num_partitions, i % num_partitions, num_partitions])
    return [LoaderRoute(address=f"grpc://127.0.0.1:{i}", partitions=p) for i, p in enumerate(owned)]


def make_plan(num_bins: int) -> StepPlan:
    return plan_at(3, seq_len=32, num_bins=num_bins, dp=1, num_steps=None)


@given(num_loaders=st.integers(1, 5), num_partitions=st.integers(1, 4), num_bins=st.integers(1, 9))
def test_needed_partitions_when_all_are_owned_then_each_piece_is_asked_for_once(
    num_loaders: int, num_partitions: int, num_bins: int
) -> None:
    plan = make_plan(num_bins)
    needed = needed_partitions(plan, spread(num_loaders, num_partitions))
    parts = [plan.of_partitions(partitions).pieces for partitions in needed.values()]
    assert all(len(part) for part in parts)
    asked = np.concatenate([part.pos for part in parts])
    assert sorted(asked.tolist()) == sorted(plan.pieces.pos.tolist())


def test_needed_partitions_when_two_loaders_own_the_same_then_one_is_asked() -> None:
    routes = [*spread(1, 1), LoaderRoute(address="grpc://127.0.0.1:9", partitions=[[0, 0, 1], [1, 0, 1]])]
    assert list(needed_partitions(make_plan(4), routes)) == ["grpc://127.0.0.1:0"]


def test_needed_partitions_when_a_lane_has_no_owner_then_it_is_named() -> None:
    routes = [LoaderRoute(address="grpc://127.0.0.1:0", partitions=[[0, 0, 1], [1, 0, 2]])]
    with pytest.raises(NotReadyError, match=r"no loader owns lane [13] of source 1 yet"):
        needed_partitions(make_plan(8), routes)


class MuteLoader(FlightService):
    """Takes calls and does not answer: like a loader that was stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.end = threading.Event()
        self.num_asked = 0

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        self.num_asked += 1
        self.end.wait(60.0)
        raise NotReadyError("the test is over")

    def act(self, action: Action, body: dict[str, Any]) -> dict[str, Any]:
        self.end.wait(60.0)
        return {}


@pytest.fixture
def mute() -> Iterator[MuteLoader]:
    loader = MuteLoader()
    yield loader
    loader.end.set()
    loader.stop()


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    """Its loader materializes any plan of it."""
    with FakePlanner(num_bins=4) as planner:
        yield planner


@pytest.fixture
def reports() -> SimpleQueue[tuple[str, str, bool]]:
    return SimpleQueue()


@pytest.fixture
def gatherer(reports: SimpleQueue[tuple[str, str, bool]]) -> Iterator[Gatherer]:
    gatherer = Gatherer(lambda: KEY, lambda *words: reports.put(words))
    yield gatherer
    gatherer.close()


def route(address: str, *partitions: list[int]) -> LoaderRoute:
    return LoaderRoute(address=address, partitions=list(partitions or ALL))


def assigned(loaders: list[LoaderRoute], shadows: list[LoaderRoute] | None = None) -> Assignment:
    return Assignment(
        run="run",
        stream="train",
        generation=0,
        first_step=0,
        ranks=[0],
        dp_of_rank=[0],
        mesh={"dp": 1},
        build_ahead=1,
        loaders=loaders,
        shadows=shadows or [],
    )


def test_gather_when_a_loader_does_not_answer_then_it_is_reported_and_left_once_others_have_its_partitions(
    mute: MuteLoader, gatherer: Gatherer, reports: SimpleQueue[tuple[str, str, bool]]
) -> None:
    told: list[object] = []

    def is_current() -> bool:
        told.extend([] if reports.empty() else [reports.get()])
        return not told

    with pytest.raises(MovedError, match=f"loader {mute.address} has not answered"):
        gatherer.gather(assigned([route(mute.address)]), make_plan(4), is_current=is_current)
    assert told == [(mute.address, "it does not say that it lives", True)]


def test_gather_when_a_loader_does_not_answer_then_its_shadow_does_and_it_is_passed_over_while_it_hangs(
    mute: MuteLoader, planner: FakePlanner, gatherer: Gatherer, reports: SimpleQueue[tuple[str, str, bool]]
) -> None:
    prose, code = ALL
    assignment = assigned(
        [route(mute.address, prose), route(planner.loader.address, code)], [route(planner.loader.address, prose)]
    )
    for step in range(3):
        plan = planner.plan(step)
        found = gatherer.gather(assignment, plan)
        assert sorted(found.column("pos").to_pylist()) == sorted(plan.pieces.pos.tolist())
    assert (mute.num_asked, gatherer.num_instead) == (1, 3)
    assert reports.get(timeout=30.0) == (mute.address, "it does not say that it lives", True)


def test_gather_when_a_loader_is_gone_then_its_shadow_is_asked_at_once(
    planner: FakePlanner, gatherer: Gatherer, reports: SimpleQueue[tuple[str, str, bool]]
) -> None:
    gone = MuteLoader()
    gone.stop()
    found = gatherer.gather(assigned([route(gone.address)], [route(planner.loader.address)]), planner.plan(0))
    assert len(found) == len(planner.plan(0).pieces)
    assert reports.get(timeout=30.0)[0] == gone.address


def test_gather_when_storage_is_away_then_the_loader_is_neither_reported_as_silent_nor_passed_over(
    planner: FakePlanner, gatherer: Gatherer, reports: SimpleQueue[tuple[str, str, bool]]
) -> None:
    planner.loader.faults = [UnavailableError("the storage is away")]
    shadow = FakeLoader(planner)
    try:
        with pytest.raises(UnavailableError, match=f"loader {planner.loader.address}: the storage is away"):
            gatherer.gather(assigned([route(planner.loader.address)], [route(shadow.address)]), planner.plan(0))
        assert not shadow.tickets
        assert reports.get_nowait()[2] is False
    finally:
        shadow.stop()


def test_gather_when_a_loader_is_slow_but_lives_then_no_shadow_is_asked(
    planner: FakePlanner, gatherer: Gatherer, reports: SimpleQueue[tuple[str, str, bool]]
) -> None:
    planner.loader.gate.clear()
    healthy, looks = planner.loader.act, list[Action]()

    def act(action: Action, body: dict[str, Any]) -> dict[str, Any]:
        looks.append(action)
        if len(looks) == 2:
            planner.loader.gate.set()
        return healthy(action, body) if action is not Action.HEALTH else {"status": "ok"}

    planner.loader.act = act  # type: ignore[method-assign]
    shadow = FakeLoader(planner)
    try:
        found = gatherer.gather(assigned([route(planner.loader.address)], [route(shadow.address)]), planner.plan(0))
        assert len(found) == len(planner.plan(0).pieces)
        assert (looks[:2], shadow.tickets, gatherer.num_instead, reports.empty()) == ([Action.HEALTH] * 2, [], 0, True)
    finally:
        shadow.stop()


@given(num_shadows=st.integers(1, 4), num_partitions=st.integers(1, 4), missing=st.integers(-1, 7))
def test_shadows_when_they_have_everything_between_them_then_each_partition_is_asked_of_one(
    num_shadows: int, num_partitions: int, missing: int
) -> None:
    partitions = [partition for one in spread(1, num_partitions) for partition in one.partitions]
    routes = spread(num_shadows, num_partitions)
    for one in routes:
        one.partitions[:] = [partition for partition in one.partitions if partition not in partitions[missing:][:1]]
    found = shadows_of(partitions, [*routes, *routes], avoid=())
    if 0 <= missing < len(partitions) or missing == -1:
        assert found == {}
    else:
        assert sorted(partition for theirs in found.values() for partition in theirs) == sorted(partitions)


def test_shadows_when_the_only_one_is_silent_itself_then_nobody_is_asked() -> None:
    assert shadows_of(ALL, [route("grpc://a:1")], avoid={"grpc://a:1"}) == {}
