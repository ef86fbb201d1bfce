"""Reporting processes that are gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.suspects import SuspectReporter
from support.services import FakePlanner, wait_until

ADDRESS = "grpc://127.0.0.1:9"


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    """It gives its verdict once `verdict_gate` is set."""
    with FakePlanner() as planner:
        yield planner
        planner.verdict_gate.set()


def _reports(planner: FakePlanner) -> int:
    return sum(path.endswith("/suspects") for path, _ in planner.requests)


def test_report_when_another_thread_reports_the_same_then_both_wait_for_one_verdict(planner: FakePlanner) -> None:
    client, gone = PlannerClient(planner.url), list[str]()
    reporter = SuspectReporter(client, by=lambda: "test", on_gone=lambda: gone.append("gone"))
    threads = [threading.Thread(target=reporter.report, args=(ADDRESS, "no answer", True)) for _ in range(2)]
    threads[0].start()
    wait_until(lambda: _reports(planner) == 1, "the first report")
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()
    planner.verdict_gate.set()
    for thread in threads:
        thread.join(30.0)
    reporter.report(ADDRESS, "no answer", True)
    assert not any(thread.is_alive() for thread in threads)
    assert (_reports(planner), gone) == (1, ["gone"])
    client.close()


def test_report_when_a_port_does_not_refuse_and_nothing_hangs_then_nobody_is_told(planner: FakePlanner) -> None:
    client = PlannerClient(planner.url)
    reporter = SuspectReporter(client, by=lambda: "test")
    reporter.report(planner.url, "it failed")
    assert _reports(planner) == 0
    client.close()
