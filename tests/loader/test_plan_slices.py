"""A loader's slices of plans: each is asked for once, and those of the next steps before they are needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from loadmaster_flight.loader.plan_slices import FETCH_AHEAD, LOOK_AHEAD, PlanSlices
from loadmaster_flight.wire.errors import RetryableError
from loadmaster_flight.wire.tickets import MaterializeTicket
from support.services import RUN, FakePlanner, wait_until


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    """An endless run of one dp rank."""
    with FakePlanner() as planner:
        yield planner


def _ticket(planner: FakePlanner, step: int) -> MaterializeTicket:
    return MaterializeTicket(
        run=RUN,
        stream="train",
        generation=1,
        first_step=step,
        last_step=step + 1,
        digests=[planner.plan(step).digest],
        dp_ranks=[0],
        partitions=[[0, 0, 1], [1, 0, 1]],
        encoder_ranks=[],
        expires_at=time.time() + 60,
    )


def _take(slices: PlanSlices, planner: FakePlanner, step: int) -> None:
    """One step, and what is asked for ahead of it."""
    assert [plan.step for plan in slices.of_ticket(_ticket(planner, step))] == [step]
    wait_until(lambda: not any(t.name == "slices" for t in threading.enumerate()), "the steps ahead to come")


def _asked(planner: FakePlanner) -> list[tuple[int, int]]:
    """Steps [first, last) of each request for plans."""
    found = [query for path, query in planner.requests if path.endswith("/plans")]
    return [(int(query["first"]), int(query["last"])) for query in found]


def test_slices_when_steps_are_taken_in_order_then_each_plan_is_asked_for_once(planner: FakePlanner) -> None:
    slices = PlanSlices(planner.url)
    for step in range(40):
        _take(slices, planner, step)
    asked = _asked(planner)
    assert asked[0] == (0, 1 + FETCH_AHEAD)
    assert all(before[1] == after[0] for before, after in pairwise(asked))
    assert asked[-1][1] >= 40 + LOOK_AHEAD


def test_slices_when_the_planner_is_away_then_the_steps_ahead_are_served(
    planner: FakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadmaster_flight.loader.plan_slices.FETCH_DEADLINE_S", 0.1)
    slices = PlanSlices(planner.url)
    for step in range(6):
        _take(slices, planner, step)
    planner.close()
    for step in range(6, 6 + LOOK_AHEAD):
        _take(slices, planner, step)
    with pytest.raises(RetryableError):
        slices.of_ticket(_ticket(planner, 6 + 2 * FETCH_AHEAD))


def test_slices_when_the_planner_hangs_then_steps_that_are_held_do_not_wait(planner: FakePlanner) -> None:
    slices = PlanSlices(planner.url)
    _take(slices, planner, 0)
    tickets, gate = [_ticket(planner, step) for step in range(1, LOOK_AHEAD)], threading.Event()

    def seq_len_at(_step: int) -> int:
        gate.wait(30)
        return 32

    planner.seq_len_at = seq_len_at
    for ticket in tickets:
        assert slices.of_ticket(ticket)
    assert any(thread.name == "slices" for thread in threading.enumerate())
    gate.set()
    _take(slices, planner, LOOK_AHEAD)


def test_slices_when_not_all_is_planned_yet_then_the_rest_is_asked_for_soon(
    planner: FakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadmaster_flight.loader.plan_slices.ASK_AGAIN_S", 3600.0)
    planner.planned = 5
    slices = PlanSlices(planner.url)
    _take(slices, planner, 0)
    planner.planned = 100
    _take(slices, planner, 1)
    assert len(_asked(planner)) == 1
    monkeypatch.setattr("loadmaster_flight.loader.plan_slices.ASK_AGAIN_S", 0.0)
    for step in range(2, 5):
        _take(slices, planner, step)
    assert _asked(planner)[1:] == [(5, 3 + FETCH_AHEAD)]
