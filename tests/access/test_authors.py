"""Who a change is written down under."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_server.access import AccessMode, Role
from support.gate import Gate

RUN = {
    "run": "run",
    "sources": {"web": {"uri": "web.jsonl", "transform": {"text": "text"}}},
    "mixture": {"weights": {"web": 1}},
    "batch": {"seq_len": 64, "microbatches": 4},
}
SHARDS = [{"uri": f"web-{i}.jsonl", "size_bytes": 1000, "etag": "e"} for i in range(8)]
MANIFEST = {
    "name": "web", "ordinal": 0, "format": "jsonl", "lanes": 2, "unit_kind": "shard", "block_bytes": 4096,
    "shards": SHARDS, "fingerprint": "f",
}  # fmt: skip


@pytest.fixture
def gate(local: Gate) -> Gate:
    """A planner with a run."""
    created = local.client().post("/runs", json={"spec": RUN, "manifests": [MANIFEST]})
    assert created.status_code == 200, created.text
    return local


def _publish(client: Any, **more: Any) -> Any:
    schedule = {"weights": {"web": 1}, "microbatches": 8, "seq_len": 64}
    body = {"message": "m", "schedule": schedule} | more
    return client.post("/runs/run/revisions", json=body, headers={"if-match": '"0"'})


def test_publish_when_signed_in_then_under_ones_own_name(gate: Gate) -> None:
    answer = _publish(gate.browser("ada", Role.PUBLISHER))
    assert answer.status_code == 201, answer.text
    assert answer.json()["revision"]["author"] == "ada"
    assert gate.audit()[-1] == ("ada", "published")


def test_publish_when_somebody_else_is_named_then_refused_and_audited(gate: Gate) -> None:
    answer = _publish(gate.browser("ada", Role.PUBLISHER), author="bob")
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert "author must be who asks, 'ada'" in answer.json()["detail"]
    assert gate.audit()[-1] == ("ada", "refused")
    assert gate.client().get("/runs/run/schedule").json()["revision"] == 0


def test_publish_when_access_is_off_then_under_the_name_in_the_request(make_gate: Callable[..., Gate]) -> None:
    gate = make_gate(AccessMode.OFF)
    gate.client().post("/runs", json={"spec": RUN, "manifests": [MANIFEST]})
    assert _publish(gate.client(), author="bob").json()["revision"]["author"] == "bob"


def test_draft_when_it_is_anothers_then_it_can_be_read_only(gate: Gate) -> None:
    ada, bob = gate.bearer("ada", Role.EDITOR), gate.bearer("bob", Role.EDITOR)
    draft = {"base": 0, "schedule": {"weights": {"web": 1}, "microbatches": 8, "seq_len": 64}}
    assert ada.put("/runs/run/drafts/ada", json=draft).status_code == 200
    assert bob.get("/runs/run/drafts/ada").json()["author"] == "ada"
    assert bob.put("/runs/run/drafts/ada", json=draft).status_code == 403
    assert bob.post("/runs/run/drafts/ada/rebase", json={}).status_code == 403
    assert bob.delete("/runs/run/drafts/ada").status_code == 403
    assert ada.delete("/runs/run/drafts/ada").status_code == 204


def test_resume_when_a_publisher_asks_then_allowed_and_an_editor_is_not(gate: Gate) -> None:
    assert gate.bearer("ada", Role.EDITOR).post("/runs/run/resume").status_code == 403
    assert gate.bearer("bob", Role.PUBLISHER).post("/runs/run/resume").status_code == 200
