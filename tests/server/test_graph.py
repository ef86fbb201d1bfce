"""The graph of a planned step over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView
from loadmaster_flight.wire.errors import NotFoundError
from loadmaster_server.planning import aggregate
from loadmaster_server.plans import drawing
from support.synthetic import LANES, Cluster, wait_for

MakeRun = Callable[..., CreateRunRequest]


@pytest.fixture
def planned(cluster: Cluster, make_run: MakeRun) -> Callable[..., Cluster]:
    """A cluster with two loaders and twelve planned steps of a run on some ranks."""

    def begin(world_size: int = 2, **spec: Any) -> Cluster:
        cluster.client.post("/runs", make_run(**spec), RunView)
        loaders = [cluster.loader(), cluster.loader()]
        wait_for(lambda: all(loader.leases for loader in loaders), what="leases")
        cluster.open(world_size)
        cluster.planned(12)
        return cluster

    return begin


def _graph(cluster: Cluster, step: int) -> dict[str, Any]:
    graph: dict[str, Any] = json.loads(cluster.client.request("GET", f"/runs/run/streams/train/steps/{step}/graph"))
    return graph


def _nodes(graph: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [node for node in graph["nodes"] if node["kind"] == kind]


def _sum(items: list[dict[str, Any]], field: str) -> float:
    return sum(item[field] for item in items)


def test_graph_when_a_step_is_planned_then_its_pieces_and_tokens_flow_from_sources_to_ranks(
    planned: Callable[..., Cluster],
) -> None:
    cluster = planned()
    plan, graph = cluster.plans(3, 4)[0], _graph(cluster, 3)
    assert (graph["step"], graph["state"], graph["strategy"], graph["masked"]) == (3, "planned", "llm_balance", 0)
    assert graph["method"] in ("lpt", "packed")
    for kind in ("source", "partition", "ranks"):
        assert _sum(_nodes(graph, kind), "pieces") == len(plan.pieces)
        assert _sum(_nodes(graph, kind), "tokens") == plan.num_tokens
        assert _sum(_nodes(graph, kind), "cost") == pytest.approx(1, abs=1e-4)
    sources = _nodes(graph, "source")
    assert [(node["name"], node["tokens"]) for node in sources] == list(
        zip(("web", "code"), plan.source_tokens_S.tolist(), strict=True)
    )
    assert [node["node"] for node in _nodes(graph, "ranks")] == ["ranks:0", "ranks:1"]
    of_rank = np.bincount(plan.pieces.bin // plan.bins_per_rank, minlength=2).tolist()
    assert [node["pieces"] for node in _nodes(graph, "ranks")] == of_rank


def test_graph_when_read_then_every_node_passes_on_what_it_gets(planned: Callable[..., Cluster]) -> None:
    graph = _graph(planned(), 5)
    for node in graph["nodes"]:
        into = [edge for edge in graph["edges"] if edge["end"] == node["node"]]
        out = [edge for edge in graph["edges"] if edge["start"] == node["node"]]
        for field in ("pieces", "tokens", "cost"):
            assert node["kind"] == "source" or _sum(into, field) == pytest.approx(node[field], abs=1e-4)
            assert node["kind"] == "ranks" or _sum(out, field) == pytest.approx(node[field], abs=1e-4)


def test_graph_when_loaders_and_constructors_are_there_then_their_addresses_are_named(
    planned: Callable[..., Cluster],
) -> None:
    cluster = planned()
    store, key = cluster.server.planner.store, cluster.server.planner.store.generations.current()[0].key
    graph = _graph(cluster, 0)
    for source in (0, 1):
        owners = store.actors.partition_owners("run", source)
        served = [n["served_by"] for n in _nodes(graph, "partition") if n["node"].startswith(f"partition:{source}:")]
        assert served == [owners[k][1] for k in sorted(owners)]
    assert {node["served_by"] for node in _nodes(graph, "ranks")} == {""}
    constructor = cluster.constructor()
    wait_for(lambda: constructor.assignments, what="an assignment")
    assert store.actors.constructors(key) == {0: constructor.address, 1: constructor.address}
    assert {node["served_by"] for node in _nodes(_graph(cluster, 0), "ranks")} == {constructor.address}


def test_graph_when_ranks_acknowledged_a_step_then_it_is_delivered(planned: Callable[..., Cluster]) -> None:
    cluster = planned()
    constructor = cluster.constructor()
    cluster.plans(0, 4, bind=1)
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(2)
    wait_for(lambda: _graph(cluster, 1)["state"] == "delivered", what="the acknowledgement")
    assert _graph(cluster, 2)["state"] == "planned"


def test_graph_when_the_step_is_large_then_places_keep_their_sums_and_edges_their_pieces(
    planned: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "MAX_CELLS", 2 * LANES * 4 - 1)
    monkeypatch.setattr(aggregate, "MAX_RANK_GROUPS", 2)
    monkeypatch.setattr(drawing, "MAX_EDGES", 2)
    cluster = planned(4)
    plan, graph = cluster.plans(2, 3)[0], _graph(cluster, 2)
    assert [node["node"] for node in _nodes(graph, "ranks")] == ["ranks:0-3"]
    for kind in ("source", "ranks"):
        assert _sum(_nodes(graph, kind), "tokens") == plan.num_tokens
    assert {node["tokens"] for node in _nodes(graph, "partition")} == {None}
    to_ranks = [edge for edge in graph["edges"] if edge["end"] == "ranks:0-3"]
    assert _sum(to_ranks, "pieces") == len(plan.pieces)
    assert {edge["cost"] for edge in graph["edges"]} == {None}


def test_graph_when_a_later_generation_goes_on_then_earlier_steps_come_from_its_parent(
    planned: Callable[..., Cluster],
) -> None:
    cluster = planned(2)
    cluster.plans(0, 4, bind=1)
    before = _graph(cluster, 1)
    generation = cluster.open(4, word="b", step=3, parent=0)
    wait_for(lambda: cluster.plans(3, 4, generation=generation), what="the step on the new mesh")
    assert _graph(cluster, 1) == before | {"state": "delivered"}
    after = _graph(cluster, 3)
    assert (after["generation"], len(_nodes(after, "ranks"))) == (generation, 4)


@pytest.mark.parametrize("path", ["/runs/run/streams/train/steps/999/graph", "/runs/none/streams/train/steps/0/graph",
                                  "/runs/run/streams/none/steps/0/graph"])  # fmt: skip
def test_graph_when_there_is_no_such_step_then_not_found(planned: Callable[..., Cluster], path: str) -> None:
    cluster = planned(1)
    with pytest.raises(NotFoundError):
        cluster.client.request("GET", path)


def test_create_when_the_strategy_is_wrong_then_refused_before_anything_is_planned(
    cluster: Cluster, make_run: MakeRun
) -> None:
    for name, says in (("nonsense", "strategy: must be one of llm_balance"), ("json:dumps", "raised TypeError")):
        with pytest.raises(Exception, match=says) as caught:
            cluster.client.post("/runs", make_run(strategy=name), RunView)
        assert type(caught.value).__name__ == "SpecError"
    assert json.loads(cluster.client.request("GET", "/runs")) == []
