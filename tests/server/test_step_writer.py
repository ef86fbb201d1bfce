"""Planned steps on their way into the log: real HTTP, real Flight, the real planner, synthetic metadata."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView
from loadmaster_server.plans import loop
from support.synthetic import DEADLINE_S, Cluster


def test_plan_when_steps_are_small_then_written_several_at_once(
    make_cluster: Callable[..., Cluster], make_run: Callable[..., CreateRunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "TOGETHER_S", DEADLINE_S)
    cluster = make_cluster()
    cluster.client.post("/runs", make_run(budgets={"plan_ahead": 40}), RunView)
    cluster.loader()
    cluster.open()
    assert [plan.step for plan in cluster.planned(40)] == list(range(40))
    assert cluster.server.planner.store.bulletin.seen("run/train") < 20
