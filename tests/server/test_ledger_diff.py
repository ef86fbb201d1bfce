"""Where two runs part, and what differs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, JoinRequest, RunView, VerdictReport
from loadmaster_flight.wire.errors import BadRequestError, NotFoundError
from loadmaster_flight.wire.ledger import DiffReport
from support.synthetic import Cluster, wait_for

MakeRun = Callable[..., CreateRunRequest]
STEPS = 10


@pytest.fixture
def plan_run(cluster: Cluster, make_run: MakeRun) -> Callable[..., None]:
    """Creates a run at the one planner, joins it, and waits until it is planned for STEPS steps."""
    cluster.loader()

    def begin(run: str, world_size: int = 1, **spec: Any) -> None:
        given = {"until": {"steps": STEPS}, "budgets": {"plan_ahead": 100}} | spec
        cluster.client.post("/runs", make_run(run, **given), RunView)
        _open(cluster, run, world_size)

    return begin


def _open(cluster: Cluster, run: str, world_size: int, **join: Any) -> None:
    for rank in [*range(world_size), *range(world_size)]:
        request = JoinRequest(rank=rank, world_size=world_size, nonce=f"{world_size}-{rank}", **join)
        cluster.client.request("POST", f"/runs/{run}/streams/train/join", body=request)
    generations = cluster.server.planner.store.generations
    wait_for(lambda: any(g.key.run == run and g.end_step for g in generations.current()), what=f"{run} to be planned")


def _diff(cluster: Cluster, a: str, b: str) -> DiffReport:
    return cluster.client.get("/diff", DiffReport, a=a, b=b)


def test_diff_when_runs_are_alike_then_they_do_not_part(cluster: Cluster, plan_run: Callable[..., None]) -> None:
    plan_run("one")
    plan_run("two")
    report = _diff(cluster, "one", "two")
    assert (report.first_step, report.kind, report.common, report.reasons) == (-1, "nothing", STEPS, [])


def test_diff_when_seeds_differ_then_the_spec_is_named(cluster: Cluster, plan_run: Callable[..., None]) -> None:
    plan_run("one", seed=1)
    plan_run("two", seed=2)
    assert "seed: 1 and 2" in _diff(cluster, "one", "two").reasons


def test_diff_when_the_mixture_differs_then_at_step_0(cluster: Cluster, plan_run: Callable[..., None]) -> None:
    plan_run("one")
    plan_run("two", mixture={"weights": {"web": 1, "code": 1}})
    report = _diff(cluster, "one", "two")
    assert (report.first_step, report.kind) == (0, "mixture")
    assert report.num_only_a > 0
    assert report.only_a[0].startswith(("web/", "code/"))
    assert "the shares in force differ" in report.reasons


def test_diff_when_the_mixture_changes_later_then_at_that_step(cluster: Cluster, plan_run: Callable[..., None]) -> None:
    plan_run("one")
    knots = [{"at": 0, "value": 3}, {"at": 5, "value": 3}, {"at": 6, "value": 1}]
    plan_run("two", mixture={"weights": {"web": knots, "code": 1}})
    report = _diff(cluster, "one", "two")
    assert (report.first_step, report.kind) == (6, "mixture")


def test_diff_when_the_mesh_differs_then_only_placement(cluster: Cluster, plan_run: Callable[..., None]) -> None:
    plan_run("one", 1)
    plan_run("two", 4)
    report = _diff(cluster, "one", "two")
    assert (report.first_step, report.kind) == (0, "placement")
    assert (report.num_only_a, report.num_only_b) == (0, 0)
    assert report.reasons == ["mesh dp: 1 and 4"]


def test_diff_when_a_step_masks_a_sample_then_its_verdict(cluster: Cluster, plan_run: Callable[..., None]) -> None:
    plan_run("one")
    plan_run("two")
    place = {"source": 0, "epoch": 0, "shard": 0, "block": 0, "row": 3}
    report = VerdictReport(stream="train", generation=0, step=4, reason="cut short", **place)
    cluster.client.request("POST", "/runs/two/verdicts", body=report)
    found = _diff(cluster, "one", "two")
    assert (found.first_step, found.kind) == (4, "verdict")


def test_diff_when_two_generations_are_compared_then_where_the_mesh_changed(
    cluster: Cluster, plan_run: Callable[..., None]
) -> None:
    plan_run("one", 1)
    generations = cluster.server.planner.store.generations
    newest = generations.current()[0]
    generations.bind(newest.key, STEPS)
    _open(cluster, "one", 2, step=3, parent=0)
    report = _diff(cluster, "one:0", "one:1")
    assert (report.kind, report.a, report.b) == ("placement", "one/train generation 0", "one/train generation 1")
    assert report.first_step >= 3
    assert _diff(cluster, "one", "one:1").first_step == -1


def test_diff_when_a_run_is_not_there_then_refused(cluster: Cluster, plan_run: Callable[..., None]) -> None:
    plan_run("one")
    with pytest.raises(NotFoundError):
        _diff(cluster, "one", "none")
    with pytest.raises(BadRequestError, match="RUN or RUN:GENERATION"):
        _diff(cluster, "one:x", "one")
