"""Which loaders are asked for what."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow.flight as fl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.constructor.gather import Gatherer, needed_partitions
from loadmaster_flight.wire.control import Assignment, LoaderRoute
from loadmaster_flight.wire.errors import MovedError, NotReadyError
from loadmaster_flight.wire.flight import FlightService
from loadmaster_flight.wire.step_plan import StepPlan
from support.services import plan_at


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

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        self.end.wait(60.0)
        raise NotReadyError("the test is over")


def test_gather_when_a_loader_does_not_answer_then_it_is_reported_and_left_once_others_have_its_partitions() -> None:
    loader, reported, told = MuteLoader(), threading.Event(), []

    def report(*words: object) -> None:
        told.append(words)
        reported.set()

    route = LoaderRoute(address=loader.address, partitions=[[0, 0, 1], [1, 0, 1]])
    assignment = Assignment(
        run="run",
        stream="train",
        generation=0,
        first_step=0,
        ranks=[0],
        dp_of_rank=[0],
        mesh={"dp": 1},
        build_ahead=1,
        loaders=[route],
    )
    gatherer = Gatherer(lambda: bytes(32), report)
    try:
        with pytest.raises(MovedError, match=f"loader {loader.address} has not answered"):
            gatherer.gather(assignment, make_plan(4), is_current=lambda: not reported.is_set())
        assert told[0] == (loader.address, "no answer for 0.5 s", True)
    finally:
        loader.end.set()
        gatherer.close()
        loader.stop()
