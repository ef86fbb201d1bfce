"""Browsers: signing in once with a link, cookies, and pages of other sites."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import update

from loadmaster_server.access import Role
from loadmaster_server.store.access_models import BrowserSessionRow, SignInCodeRow
from support.gate import HOST, ORIGIN, Gate

HOLD = "/runs/none/schedule/hold"


def _set(gate: Gate, table: type, **values: Any) -> None:
    with gate.planner.store.database.writing() as session:
        session.execute(update(table).values(**values))


def test_sign_in_when_the_link_is_used_then_a_cookie_that_pages_cannot_read(guarded: Gate) -> None:
    client = guarded.client(origin=ORIGIN)
    code = guarded.planner.access.create_code("ada", [Role.ADMIN], by="test")
    answer = client.post("/session", json={"code": code})
    assert answer.status_code == 201
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("loadmaster_session_8321=lms_")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    view = client.get("/session").json()
    assert (view["name"], view["role"], view["csrf"]) == ("ada", "admin", answer.json()["csrf"])
    assert guarded.audit() == [("test", "link_created"), ("ada", "signed_in")]


def test_sign_in_when_the_link_was_used_or_is_too_old_then_refused(guarded: Gate) -> None:
    code = guarded.planner.access.create_code("ada", [Role.ADMIN], by="test")
    assert guarded.client().post("/session", json={"code": code}).status_code == 201
    assert guarded.client().post("/session", json={"code": code}).status_code == 401
    late = guarded.planner.access.create_code("ada", [Role.ADMIN], by="test")
    _set(guarded, SignInCodeRow, expires_at=1.0)
    answer = guarded.client().post("/session", json={"code": late})
    assert (answer.status_code, "loadmaster sign-in" in answer.json()["detail"]) == (401, True)


def test_sign_in_when_many_use_one_link_at_once_then_one_gets_in(guarded: Gate) -> None:
    code = guarded.planner.access.create_code("ada", [Role.ADMIN], by="test")
    clients, codes, start = [guarded.client() for _ in range(6)], [], threading.Barrier(6)

    def use(client: Any) -> None:
        start.wait(30)
        codes.append(client.post("/session", json={"code": code}).status_code)

    threads = [threading.Thread(target=use, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(codes) == [201, 401, 401, 401, 401, 401]


@pytest.mark.parametrize("body", [{}, {"code": "x", "token": "y"}, {"code": 3}])
def test_sign_in_when_the_body_is_wrong_then_400(guarded: Gate, body: Any) -> None:
    assert guarded.client().post("/session", json=body).status_code == 400


def test_change_when_a_cookie_comes_without_csrf_or_origin_then_refused_and_audited(local: Gate) -> None:
    browser = local.browser("ada", Role.PUBLISHER)
    assert browser.post(HOLD, json={"message": "m"}).status_code == 404
    csrf = browser.headers.pop("x-loadmaster-csrf")
    bare = browser.post(HOLD, json={"message": "m"})
    assert (bare.status_code, "x-loadmaster-csrf must be" in bare.json()["detail"]) == (403, True)
    browser.headers |= {"x-loadmaster-csrf": csrf, "origin": "http://evil.example"}
    assert browser.post(HOLD, json={"message": "m"}).status_code == 403
    del browser.headers["origin"]
    assert browser.post(HOLD, json={"message": "m"}).status_code == 403
    assert local.audit()[-1] == ("ada", "refused")


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)
def test_change_when_a_page_of_another_site_sends_it_then_refused_without_any_cookie(
    local: Gate, headers: dict[str, str]
) -> None:
    assert local.client().delete("/actors/none").status_code != 403
    assert local.client(**headers).delete("/actors/none").status_code == 403


def test_read_when_a_page_of_another_site_sends_it_then_refused(local: Gate) -> None:
    assert local.client(**{"sec-fetch-site": "cross-site"}).get("/runs").status_code == 403
    assert local.client(**{"sec-fetch-site": "same-origin"}).get("/runs").status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [(HOST, 200), ("localhost:9", 200), ("[::1]:80", 200), ("evil.example", 403), ("10.0.0.1:8321", 403)],
)
def test_host_when_it_is_no_loopback_name_then_refused(local: Gate, host: str, status: int) -> None:
    assert local.client(host).get("/health").status_code == status


def test_session_when_idle_or_too_old_then_nobody(guarded: Gate) -> None:
    browser = guarded.browser("ada", Role.VIEWER)
    _set(guarded, BrowserSessionRow, seen_at=1.0)
    guarded.planner.access._forget()
    assert browser.get("/runs").status_code == 401
    other = guarded.browser("ada", Role.VIEWER)
    _set(guarded, BrowserSessionRow, expires_at=1.0)
    guarded.planner.access._forget()
    assert other.get("/session").status_code == 401


def test_sign_out_when_done_then_the_cookie_opens_nothing(guarded: Gate) -> None:
    browser = guarded.browser("ada", Role.VIEWER)
    cookie = dict(browser.cookies)
    assert browser.delete("/session").status_code == 204
    assert not browser.cookies
    browser.cookies.update(cookie)
    assert browser.get("/runs").status_code == 401
    assert guarded.audit()[-2:] == [("ada", "signed_out"), ("anonymous", "refused")]


def test_sessions_when_listed_then_ones_own_and_everybodys_for_an_admin(guarded: Gate) -> None:
    ada, bob = guarded.browser("ada", Role.VIEWER), guarded.browser("bob", Role.EDITOR)
    root = guarded.browser("root", Role.ADMIN)
    own = ada.get("/sessions").json()
    assert [(session["name"], session["is_current"]) for session in own] == [("ada", True)]
    assert sorted(session["name"] for session in root.get("/sessions").json()) == ["ada", "bob", "root"]
    assert bob.delete(f"/sessions/{own[0]['id']}").status_code == 404
    assert ada.get("/runs").status_code == 200
    assert root.delete(f"/sessions/{own[0]['id']}").status_code == 204
    assert ada.get("/runs").status_code == 401
    assert guarded.audit()[-2:] == [("root", "signed_out"), ("anonymous", "refused")]
