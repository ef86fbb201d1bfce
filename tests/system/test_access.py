"""A cluster that answers nobody unknown: its own processes have a token, a trainer needs one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loadmaster
from loadmaster_flight.wire.errors import UnauthenticatedError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.access import AccessMode, Role
from loadmaster_server.launch import LocalCluster
from support.editing import token_in

pytestmark = pytest.mark.processes


def test_cluster_when_tokens_are_needed_then_a_trainer_with_one_trains_and_one_without_does_not(
    frozen: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, manifests = frozen(until={"steps": 4})
    with LocalCluster(state_dir=tmp_path / "state", access=AccessMode.TOKEN) as cluster:
        cluster.create_run(spec, manifests)
        with pytest.raises(UnauthenticatedError, match="LOADMASTER_TOKEN"):
            next(loadmaster.connect(cluster.url, framework="numpy"))
        monkeypatch.setenv("LOADMASTER_TOKEN", token_in(cluster.state_dir, "trainer", Role.PROCESS))
        with loadmaster.connect(cluster.url, framework="numpy") as stream:
            assert [batch.step for batch in stream] == [0, 1, 2, 3]
        own, url = cluster.token, cluster.url
        client = PlannerClient(url, token=own)
        assert client.request("GET", "/runs")
        client.close()
    assert cluster.token is None
