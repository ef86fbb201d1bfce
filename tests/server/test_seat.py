"""Two planners on one database: one acts, the other says who does, and takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView
from loadmaster_flight.wire.errors import UnavailableError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.serving import PlannerServer
from loadmaster_server.settings import PlannerSettings
from support.synthetic import wait_for

MakeServer = Callable[..., PlannerServer]


@pytest.fixture
def make_server(tmp_path: Path, database_url: str) -> Iterator[MakeServer]:
    """Planners on one database, each with a folder of its own unless it is named."""
    with ExitStack() as stack:

        def make(folder: str, *, lease_s: float = 5.0) -> PlannerServer:
            settings = PlannerSettings(state_dir=tmp_path / folder, database_url=database_url, planner_lease_s=lease_s)
            return stack.enter_context(PlannerServer(settings))

        yield make


def _runs(server: PlannerServer) -> bytes:
    client = PlannerClient(server.url)
    try:
        return client.request("GET", "/runs")
    finally:
        client.close()


@pytest.mark.parametrize("folder", ["second", "first"])
def test_second_planner_when_one_acts_then_503_with_its_name_and_takes_over_when_it_stops(
    make_server: MakeServer, make_run: Callable[..., CreateRunRequest], folder: str
) -> None:
    first = make_server("first")
    client = PlannerClient(first.url)
    client.post("/runs", make_run(), RunView)
    client.close()
    second = make_server(folder)
    with pytest.raises(UnavailableError, match="stands by: " + first.url) as refused:
        _runs(second)
    assert refused.value.details["holder"].startswith(first.url)
    assert (first.seat.is_acting, second.seat.is_acting) == (True, False)
    assert (first.seat.is_standing_by, second.seat.is_standing_by) == (False, True)
    first.stop()
    wait_for(lambda: second.seat.is_acting, what="the second to act")
    assert b'"run":"run"' in _runs(second)


def test_planner_when_another_has_taken_over_then_it_stands_by(make_server: MakeServer) -> None:
    first = make_server("first")
    store, lease = first.planner.store, first.seat._lease
    second = make_server("second", lease_s=0.2)  # less patient than the first renews
    wait_for(lambda: second.seat.is_acting, what="the second to act")
    with pytest.raises(UnavailableError, match="lost its lease to " + second.url):
        store.runs.retire_idle()
    wait_for(lambda: not first.seat.is_acting, what="the first to notice")
    assert not lease.is_held
    with pytest.raises(UnavailableError, match="stands by: " + second.url):
        _runs(first)
