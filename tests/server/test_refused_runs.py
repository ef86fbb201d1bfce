"""What no rank could be served: refused when the run is created, or when ranks join; not when a step is planned."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView, StreamView
from loadmaster_flight.wire.errors import LoadmasterError, MeshError, NotFoundError, SpecError
from support.bad_strategies import RULES, dotted
from support.synthetic import Cluster

BATCH = {"seq_len": 64, "microbatches": 4}

RUNS: list[tuple[dict[str, Any], type[LoadmasterError], str]] = [
    *(({"strategy": dotted(name)}, SpecError, rule) for name, rule in RULES.items()),
    ({"mesh": {"cp": 3}}, MeshError, "2 * cp must divide align, got cp 3 and align 16"),
    ({"mesh": {"dp": 3}}, MeshError, "dp must divide microbatches, got dp 3 and 4 microbatches in train"),
    ({"mesh": {"dp": 2, "speed": {2: 0.5}}}, MeshError, "mesh.speed must name ranks in [0, 2), got 2"),
    ({"mesh": {"speed": {4: 0.5}}}, MeshError, "mesh.speed must name ranks in [0, 4), got 4"),
    ({"mesh": {"speed": {0: float("nan")}}}, SpecError, "mesh.speed.0"),
    ({"mesh": {"speed": {0: -1}}}, SpecError, "mesh.speed.0"),
    ({"batch": BATCH | {"over_long": "keep"}}, SpecError, "batch.over_long"),
    ({"model": {"backbone": {"hidden": -8, "layers": 1, "ffn": 8, "vocab": 8}}}, SpecError, "model.backbone.hidden"),
]


@pytest.mark.parametrize(("fields", "error", "rule"), RUNS, ids=[rule[:44] for *_, rule in RUNS])
def test_create_when_no_step_could_be_served_then_refused_and_no_run_is_there(
    cluster: Cluster,
    make_run: Callable[..., CreateRunRequest],
    fields: dict[str, Any],
    error: type[LoadmasterError],
    rule: str,
) -> None:
    with pytest.raises(error, match=re.escape(rule)):
        cluster.client.post("/runs", make_run(**fields), RunView)
    with pytest.raises(NotFoundError):
        cluster.client.get("/runs/run", RunView)


JOINS: list[tuple[dict[str, Any], dict[str, Any], type[LoadmasterError], str]] = [
    ({"mesh": {"cp": 2}}, {"world_size": 3}, MeshError, "the mesh must have world_size = 3 ranks, got pp 1 * dp auto"),
    ({"mesh": {"dp": 2}}, {"world_size": 4}, MeshError, "the mesh must have world_size = 4 ranks, got pp 1 * dp 2"),
    ({}, {"world_size": 3, "mesh": {"cp": 3}}, MeshError, "2 * cp must divide align, got cp 3 and align 16"),
    ({"mesh": {"speed": {3: 0.5}}}, {"world_size": 2}, MeshError, "mesh.speed must name ranks in [0, 2), got 3"),
    ({"strategy": dotted("in_pairs")}, {"world_size": 1}, SpecError, "group_size must divide the 1 consumers of dp"),
]


@pytest.mark.parametrize(("fields", "request_", "error", "rule"), JOINS, ids=[rule[:44] for *_, rule in JOINS])
def test_join_when_no_step_could_be_served_then_refused_before_a_generation_opens(
    cluster: Cluster,
    make_run: Callable[..., CreateRunRequest],
    fields: dict[str, Any],
    request_: dict[str, Any],
    error: type[LoadmasterError],
    rule: str,
) -> None:
    cluster.client.post("/runs", make_run(**fields), RunView)
    with pytest.raises(error, match=re.escape(rule)):
        cluster.join(rank=0, **request_)
    assert cluster.client.get("/runs/run/streams/train", StreamView).state == "idle"


def test_join_when_the_strategy_suits_the_mesh_then_ranks_wait_for_each_other(
    cluster: Cluster, make_run: Callable[..., CreateRunRequest]
) -> None:
    cluster.client.post("/runs", make_run(strategy=dotted("in_pairs")), RunView)
    assert cluster.join(rank=0, world_size=2).waiting_for == [1]
