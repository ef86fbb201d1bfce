"""Every read of the HTTP interface on both databases: each has SQL of its own behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_server.app import create_app
from support.live_run import LiveRun
from support.synthetic import Cluster, wait_for

KNOWN = {
    "{run}": "run", "{stream}": "train", "{generation}": "0", "{step}": "1", "{revision}": "0", "{author}": "ada",
    "{number}": "1",
}  # fmt: skip
QUERIES: dict[str, dict[str, Any]] = {
    "/diff": {"a": "run", "b": "run"},
    "/runs/{run}/samples": {"sample": "web/0/0/0@0"},
    "/runs/{run}/streams/{stream}/generations/{generation}/plans": {"first": 0, "last": 3},
    "/runs/{run}/verify": {"stream": "train"},
}
ENDLESS = {"/events"}
ABSENT = {"/runs/{run}/drafts/{author}": "NOT_FOUND", "/runs/{run}/scheduled/{number}": "NOT_FOUND"}
"""What this run does not have, and the code that says so."""
STEPS = 3


@pytest.fixture
def live_run(make_cluster: Callable[..., Cluster], database_url: str) -> LiveRun:
    """A run of one rank that has consumed some steps, on either database."""
    run = LiveRun(make_cluster(database_url=database_url), 1)
    run.acknowledge(STEPS)
    return run


def test_reads_when_asked_on_either_database_then_all_are_answered(live_run: LiveRun) -> None:
    paths = create_app(live_run.cluster.server.planner).openapi()["paths"]
    templates = [path.removeprefix("/api/v1") for path, methods in paths.items() if "get" in methods]
    assert len(templates) > 25
    answers = {template: _answer(live_run, template) for template in templates if template not in ENDLESS}
    assert {name: told for name, told in answers.items() if isinstance(told, str)} == ABSENT
    report = wait_for(lambda: _verified(live_run), what="the plan log to be gone through")
    assert (report["acknowledged"], report["faults"]) == (STEPS, [])
    assert report["pieces"] > 0


def _verified(live_run: LiveRun) -> dict[str, Any]:
    """The report, once it is done."""
    report: dict[str, Any] = live_run.read("/verify", stream="train")
    return report if report["is_done"] else {}


def _answer(live_run: LiveRun, template: str) -> bytes | str:
    """The body, or the code of the problem."""
    path = template
    for name, value in KNOWN.items():
        path = path.replace(name, value)
    try:
        return live_run.cluster.client.request("GET", path, query=QUERIES.get(template, {}))
    except LoadmasterError as error:
        return error.code
