"""Runs over real HTTP: creation, freezing, views, and what wrong input is answered with."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.control import CreateRunRequest, RunView, StreamView
from loadmaster_flight.wire.errors import BadRequestError, ConflictError, NotFoundError, SpecError
from loadmaster_server.runs.service import RunService
from loadmaster_server.store import Store
from support.synthetic import Cluster

MakeRun = Callable[..., CreateRunRequest]


def test_create_when_repeated_then_same_answer(cluster: Cluster, make_run: MakeRun) -> None:
    evaluation = {"held_out": {"sources": ["code"]}}
    views = [cluster.client.post("/runs", make_run(evaluation=evaluation), RunView) for _ in range(2)]
    assert views[0] == views[1]
    assert views[0] == RunView(run="run", state="idle", reason="", revision=0, streams=["train", "held_out"])
    assert json.loads(cluster.client.request("GET", "/runs"))[0]["run"] == "run"


def test_definition_then_the_frozen_spec_and_manifests(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    definition = cluster.client.get("/runs/run/definition", CreateRunRequest)
    assert list(definition.spec["sources"]) == ["web", "code"]
    assert [manifest["name"] for manifest in definition.manifests] == ["web", "code"]
    assert cluster.client.post("/runs", definition, RunView).run == "run"


def test_create_when_spec_differs_then_conflict_names_the_field(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    with pytest.raises(ConflictError, match=r"spec\.seed: nothing -> 7") as caught:
        cluster.client.post("/runs", make_run(seed=7), RunView)
    assert "another name" in str(caught.value)


def test_create_when_a_shard_changed_then_conflict_names_it(cluster: Cluster, make_run: MakeRun) -> None:
    request = make_run()
    cluster.client.post("/runs", request, RunView)
    request.manifests[1]["shards"][2]["etag"] = "changed"
    with pytest.raises(ConflictError, match=r"manifests\.code\.shards\[2\]\.etag: 'e2' -> 'changed'"):
        cluster.client.post("/runs", request, RunView)


def test_create_when_sources_are_ordered_otherwise_then_conflict(cluster: Cluster, make_run: MakeRun) -> None:
    request = make_run()
    cluster.client.post("/runs", request, RunView)
    spec = request.spec | {"sources": dict(reversed(request.spec["sources"].items()))}
    manifests = [manifest | {"ordinal": i} for i, manifest in enumerate(reversed(request.manifests))]
    with pytest.raises(ConflictError, match="ordinal"):
        cluster.client.post("/runs", CreateRunRequest(spec=spec, manifests=manifests), RunView)


def test_create_when_spec_is_wrong_then_bad_spec_names_field_rule_value(cluster: Cluster, make_run: MakeRun) -> None:
    with pytest.raises(SpecError, match=r"spec: seed: Input should be greater than or equal to 0, got -1"):
        cluster.client.post("/runs", make_run(seed=-1), RunView)


def test_create_when_manifests_do_not_fit_then_bad_request(cluster: Cluster, make_run: MakeRun) -> None:
    request = make_run()
    with pytest.raises(BadRequestError, match=r"manifests must be those of the sources \['web', 'code'\], in order"):
        cluster.client.post("/runs", replace(request, manifests=request.manifests[::-1][:1] * 2), RunView)
    request.manifests[1]["lanes"] = 0
    with pytest.raises(
        BadRequestError, match=r"manifests\[1\]: lanes: Input should be greater than or equal to 1, got 0"
    ):
        cluster.client.post("/runs", request, RunView)


@pytest.mark.parametrize(
    "path", ["/runs/nope", "/runs/nope/definition", "/runs/nope/streams/train", "/runs/run/streams/x"]
)
def test_view_when_unknown_then_not_found(cluster: Cluster, make_run: MakeRun, path: str) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    with pytest.raises(NotFoundError):
        cluster.client.request("GET", path)


def test_stream_view_when_nobody_joined_then_idle_with_the_mixture(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    view = cluster.client.get("/runs/run/streams/train", StreamView)
    assert (view.state, view.generation, view.planned, view.waiting_for) == ("idle", -1, 0, [])
    assert (view.source_names, view.source_weights, view.source_tokens) == (["web", "code"], [0.75, 0.25], [0, 0])


def test_stream_view_when_an_evaluation_is_idle_then_its_own_sources_have_the_shares(
    cluster: Cluster, make_run: MakeRun
) -> None:
    cluster.client.post("/runs", make_run(evaluation={"held_out": {"sources": ["code"]}}), RunView)
    assert cluster.client.get("/runs/run/streams/held_out", StreamView).source_weights == [0, 1]


def _raw(cluster: Cluster, method: str, path: str, body: bytes | None = None) -> tuple[int, str, dict[str, Any]]:
    host, port = cluster.server.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    headers = {"content-type": "application/json"} if body is not None else {}
    try:
        connection.request(method, "/api/v1" + path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "says"),
    [
        ("POST", "/actors", b'{"role": "chef", "address": "a", "incarnation": "b"}', 400, "BAD_REQUEST", "body.role"),
        ("POST", "/actors", b'{"role": "loader", "incarnation": "b"}', 400, "BAD_REQUEST", "body.address"),
        ("POST", "/actors", b'{"role": ', 400, "BAD_REQUEST", "body must be JSON"),
        ("POST", "/runs", b'{"spec": {}, "manifests": []}', 422, "BAD_SPEC", "run: Field required"),
        ("POST", "/runs/run/streams/train/join", b'{"rank": "x"}', 400, "BAD_REQUEST", "body.rank"),
        ("GET", "/runs/run/streams/train/generations/0/plans?first=a&last=1", None, 400, "BAD_REQUEST", "query.first"),
        ("GET", "/runs/run/streams/train/generations/0/plans?first=0&last=1", None, 404, "NOT_FOUND", "run/train"),
        ("GET", f"/runs/run/streams/x/generations/{10**30}/plans?first=0&last=1", None, 400, "BAD_REQUEST", "large"),
        ("GET", "/nowhere", None, 404, "NOT_FOUND", "GET /api/v1/nowhere"),
        ("PUT", "/runs", b"{}", 405, "BAD_REQUEST", "PUT /api/v1/runs"),
    ],
)  # fmt: skip
def test_request_when_wrong_then_problem_names_the_field(
    cluster: Cluster, method: str, path: str, body: bytes | None, status: int, code: str, says: str
) -> None:
    answered, kind, problem = _raw(cluster, method, path, body)
    assert (answered, kind, problem["code"]) == (status, "application/problem+json", code)
    assert problem["status"] == status
    assert says in problem["detail"]


def test_create_when_a_run_is_new_then_those_who_prepare_for_it_are_told(tmp_path: Path, make_run: MakeRun) -> None:
    store, seen = Store(f"sqlite:///{tmp_path / 'store.db'}"), list[RunSpec]()
    try:
        RunService(store, lambda key: [], seen.append).create(make_run())
    finally:
        store.close()
    assert [spec.run for spec in seen] == ["run"]
