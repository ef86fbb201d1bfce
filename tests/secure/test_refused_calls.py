"""Whoever may not, is told so with a code of its own, and it is written down: HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from loadmaster_flight.wire.control import JoinReply, JoinRequest, TicketReply, TicketRequest
from loadmaster_flight.wire.errors import BY_CODE, LoadmasterError
from loadmaster_flight.wire.http import API, PlannerClient
from loadmaster_server.access import Role
from loadmaster_server.access.attempts import Attempts
from loadmaster_server.access.refusals import RefusalLog
from support.secured import RUN, Secured

STREAM = f"/runs/{RUN}/streams/train"
Call = Callable[[Secured, PlannerClient], Any]


def _join(client: PlannerClient, nonce: str) -> JoinReply:
    """As both ranks."""
    asks = [JoinRequest(rank=rank, world_size=2, nonce=f"{nonce}{rank}") for rank in (0, 1, 0, 1)]
    return [client.post(f"{STREAM}/join", ask, JoinReply) for ask in asks][-1]


def _ticket(client: PlannerClient, generation: int, *, rank: int = 0, nonce: str = "now0") -> TicketReply:
    request = TicketRequest(generation=generation, rank=rank, first_step=0, nonce=nonce)
    return client.post(f"{STREAM}/tickets", request, TicketReply)


def _with(token: str) -> Call:
    """Ask for the runs with a token."""

    def call(plane: Secured, client: PlannerClient) -> None:
        with contextlib.closing(plane.client(token)) as other:
            other.request("GET", "/runs")

    return call


def _expired(plane: Secured, client: PlannerClient) -> None:
    token = plane.token("late", Role.VIEWER, expires_in_s=60.0)
    with patch("loadmaster_server.access.service.time.time", return_value=time.time() + 61):
        _with(token)(plane, client)


def _revoked(plane: Secured, client: PlannerClient) -> None:
    token = plane.token("dismissed", Role.VIEWER)
    plane.server.planner.access.revoke_token(token.split("_")[1], by="test")
    _with(token)(plane, client)


def _forged(plane: Secured, client: PlannerClient) -> None:
    token = plane.token("real", Role.VIEWER)
    _with(token[:-1] + ("0" if token[-1] != "0" else "1"))(plane, client)


def _old_generation(plane: Secured, client: PlannerClient) -> None:
    old = _join(client, "old").generation
    _join(client, "now")
    _ticket(client, old, nonce="old0")


def _other_rank(plane: Secured, client: PlannerClient) -> None:
    generation = _join(client, "now").generation
    _ticket(client, generation, rank=1, nonce="now0")


def _wrong_role(plane: Secured, client: PlannerClient) -> None:
    client.request("GET", "/tokens")


REFUSED: list[tuple[str, Call, str, str]] = [
    ("unauthenticated", _with(""), "UNAUTHENTICATED", "needs the role viewer or process"),
    ("wrong role", _wrong_role, "FORBIDDEN", "needs the role admin; 'trainer' is process"),
    ("expired", _expired, "UNAUTHENTICATED", "has expired"),
    ("revoked", _revoked, "UNAUTHENTICATED", "was revoked"),
    ("forged", _forged, "UNAUTHENTICATED", "never handed out"),
    ("replayed generation", _old_generation, "GONE", "generation"),
    ("wrong rank", _other_rank, "FORBIDDEN", "rank 1 of secured/train generation .* joined with another nonce"),
]


@pytest.mark.parametrize(("call", "code", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_call_when_it_is_not_allowed_then_refused_with_its_code_and_written_down(
    plane: Secured, call: Call, code: str, says: str
) -> None:
    planner = plane.server.planner
    planner.access.refusals = RefusalLog(planner.store.access)  # another minute
    before, mine = _refusals(plane), plane.client(plane.token("trainer", Role.PROCESS))
    with contextlib.closing(mine) as client, pytest.raises(LoadmasterError, match=says) as caught:
        call(plane, client)
    assert type(caught.value) is BY_CODE[code]
    written = _refusals(plane)[len(before) :]
    assert [row["code"] for row in written] == [code]
    assert written[0]["address"] == "127.0.0.1"


def _refusals(plane: Secured) -> list[dict[str, Any]]:
    rows = plane.server.planner.store.audit.read(action="refused", limit=1000)
    return [row.details for row in reversed(rows)]


def test_session_when_its_cookie_is_forged_then_nobody_is_signed_in(plane: Secured) -> None:
    port = plane.url.rsplit(":", 1)[1]
    cookies = {f"loadmaster_session_{port}": "lms_" + "0" * 12 + "_" + "0" * 64}
    with _browser(plane, cookies=cookies) as browser:
        assert browser.get("/runs").json()["code"] == "UNAUTHENTICATED"


def test_session_when_over_tls_then_its_cookie_never_goes_over_plain_text(plane: Secured) -> None:
    code = plane.server.planner.access.create_code("someone", [Role.VIEWER], by="test")
    with _browser(plane) as browser:
        answer = browser.post("/session", json={"code": code})
    assert answer.status_code == 201
    assert "Secure" in answer.headers["set-cookie"]


def test_sign_in_when_it_fails_too_often_then_no_more_attempts_are_taken(
    plane: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = plane.server.planner.access
    monkeypatch.setattr(access, "_attempts", Attempts())
    with _browser(plane) as browser:
        answers = [browser.post("/session", json={"token": f"lm_{i}"}).json()["code"] for i in range(12)]
        assert answers == ["UNAUTHENTICATED"] * 10 + ["BUSY"] * 2
        good = access.create_code("someone", [Role.VIEWER], by="test")
        answer = browser.post("/session", json={"code": good})
        assert (answer.status_code, answer.json()["code"]) == (503, "BUSY")
        assert 0 < answer.json()["details"]["retry_after_s"] <= 60


def test_body_when_it_is_too_large_then_it_is_not_read(plane: Secured) -> None:
    known = {"authorization": f"Bearer {plane.token('trainer', Role.PROCESS)}"}
    large = {"content-length": str(5 << 20)}
    unknown = {"content-length": str(100 << 10)}
    assert _answer(plane, known | large) == (413, "BAD_REQUEST")
    assert _answer(plane, unknown) == (401, "UNAUTHENTICATED")
    assert _answer(plane, known | {"transfer-encoding": "chunked"}) == (411, "BAD_REQUEST")


def _answer(plane: Secured, headers: dict[str, str]) -> tuple[int, str]:
    """To the head of a request whose body never comes."""
    host = plane.url.removeprefix("https://")
    connection = http.client.HTTPSConnection(host, timeout=20, context=plane.tls().client_context())
    with contextlib.closing(connection):
        connection.putrequest("POST", f"{API}{STREAM}/join")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["code"]


def _browser(plane: Secured, **more: Any) -> httpx2.Client:
    return httpx2.Client(base_url=plane.url + API, verify=plane.tls().client_context(), timeout=20, **more)


def test_audit_when_refusals_pour_in_then_the_table_does_not_fill(plane: Secured) -> None:
    before = len(_refusals(plane))
    with _browser(plane) as browser:
        for _ in range(15):
            assert json.loads(browser.get("/tokens").text)["code"] == "UNAUTHENTICATED"
    assert len(_refusals(plane)) - before <= 1
