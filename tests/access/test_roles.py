"""What each role may do, in each mode."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version

import pytest

from loadmaster_server.access import AccessMode, Role
from support.gate import Gate

READ, PREVIEW, PUBLISH, TOKENS, JOIN = "read", "preview", "publish", "tokens", "join"
CALLS = {
    READ: ("GET", "/runs/none/schedule", None),
    PREVIEW: ("POST", "/runs/none/preview", {}),
    PUBLISH: ("POST", "/runs/none/schedule/hold", {"message": "m"}),
    TOKENS: ("GET", "/tokens", None),
    JOIN: ("POST", "/runs/none/streams/train/join", {"rank": 0, "world_size": 1, "nonce": "n"}),
}


def _allowed(client: object) -> set[str]:
    """Which of the calls are not refused; what there is not, or is wrong, is not refused."""
    answers = {name: client.request(method, path, json=body) for name, (method, path, body) in CALLS.items()}  # type: ignore[attr-defined]
    assert {answer.status_code for answer in answers.values()} <= {200, 401, 403, 404, 422, 400}
    return {name for name, answer in answers.items() if answer.status_code not in (401, 403)}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.VIEWER, {READ}),
        (Role.EDITOR, {READ, PREVIEW}),
        (Role.PUBLISHER, {READ, PREVIEW, PUBLISH}),
        (Role.ADMIN, {READ, PREVIEW, PUBLISH, TOKENS}),
        (Role.PROCESS, {JOIN}),
    ],
)
def test_calls_when_a_token_is_needed_then_what_the_role_may(guarded: Gate, role: Role, allowed: set[str]) -> None:
    assert _allowed(guarded.bearer("ada", role)) == allowed


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [(AccessMode.OFF, set(CALLS)), (AccessMode.LOCAL, {READ, JOIN}), (AccessMode.TOKEN, set())],
)
def test_calls_when_nobody_says_who_it_is_then_what_the_mode_allows(
    make_gate: Callable[[AccessMode], Gate], mode: AccessMode, allowed: set[str]
) -> None:
    client = make_gate(mode).client()
    assert _allowed(client) == allowed
    told = client.get("/health").json()
    assert told == {"status": "ok", "access": mode.value, "version": version("loadmaster"), "time": told["time"]}
    assert abs(told["time"] - time.time()) < 60


def test_calls_when_local_and_signed_in_then_a_process_may_still_join(local: Gate) -> None:
    assert _allowed(local.bearer("ada", Role.PUBLISHER)) == {READ, JOIN, PREVIEW, PUBLISH}


def test_refusal_when_the_role_is_missing_then_it_says_which_and_how(guarded: Gate) -> None:
    nobody = guarded.client().get("/tokens")
    assert (nobody.status_code, nobody.headers["www-authenticate"]) == (401, "Bearer")
    assert nobody.json()["details"] == {"needs": ["admin"]}
    assert "loadmaster sign-in" in nobody.json()["detail"]
    editor = guarded.bearer("ada", Role.EDITOR).get("/tokens")
    assert (editor.status_code, editor.json()["code"]) == (403, "FORBIDDEN")
    assert editor.json()["detail"] == "GET /api/v1/tokens needs the role admin; 'ada' is editor"


def test_session_when_asked_then_it_says_what_one_may(guarded: Gate, local: Gate) -> None:
    view = guarded.bearer("ada", Role.PUBLISHER).get("/session").json()
    assert (view["name"], view["role"], view["csrf"]) == ("ada", "publisher", "")
    assert view["can"] == ["view", "draft", "preview", "publish", "resume"]
    nobody = local.client().get("/session")
    assert (nobody.status_code, nobody.json()["details"]) == (401, {"access": "local", "can": ["view"]})


def test_refusal_when_repeated_then_one_row_of_the_audit_log(guarded: Gate) -> None:
    client = guarded.bearer("ada", Role.VIEWER)
    for _ in range(5):
        assert client.get("/tokens").status_code == 403
    assert client.post("/runs/none/schedule/hold", json={"message": "m"}).status_code == 403
    assert guarded.audit()[1:] == [("ada", "refused"), ("ada", "refused")]
    row = guarded.planner.store.audit.read(action="refused")[0]
    assert (row.run, row.details["target"]) == ("none", "POST /api/v1/runs/none/schedule/hold")
    assert (row.details["code"], row.details["left_out"]) == ("FORBIDDEN", 4)
    assert guarded.client().get("/session").status_code == 401
    assert len(guarded.audit()) == 3
