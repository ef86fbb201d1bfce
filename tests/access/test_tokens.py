"""Bearer tokens: handed out, used, too old, revoked; never kept as they are."""

from __future__ import annotations

import time

from sqlalchemy import text

from loadmaster_server.access import Role
from support.gate import Gate


def test_token_when_handed_out_over_http_then_it_opens_and_is_listed(guarded: Gate) -> None:
    admin = guarded.bearer("ada", Role.ADMIN)
    made = admin.post("/tokens", json={"name": "trainer", "roles": ["process"], "expires_in_s": 60})
    assert made.status_code == 201
    secret = made.json()["token"]
    assert secret.startswith(f"lm_{made.json()['id']}_")
    trainer = guarded.client(authorization=f"Bearer {secret}")
    assert trainer.get("/runs").json() == []
    rows = admin.get("/tokens").json()
    assert [(row["name"], row["roles"], row["created_by"], row["is_good"]) for row in rows] == [
        ("ada", ["admin"], "test", True),
        ("trainer", ["process"], "ada", True),
    ]
    assert time.time() - rows[1]["last_used_at"] < 30
    assert "token" not in rows[1]
    assert guarded.audit() == [("test", "token_created"), ("ada", "token_created")]


def test_token_when_kept_then_only_as_a_hash(guarded: Gate) -> None:
    secret = guarded.token("ada", Role.ADMIN).rsplit("_", 1)[1]
    with guarded.planner.store.database.reading() as session:
        kept = (
            session.execute(text("SELECT * FROM api_tokens")).all()
            + session.execute(text("SELECT * FROM audit_log")).all()
        )
    assert len(kept) == 2
    assert secret not in str(kept)
    assert bytes.fromhex(secret) not in [value for row in kept for value in row]


def test_token_when_revoked_then_it_and_its_sessions_open_nothing(guarded: Gate) -> None:
    admin, secret = guarded.bearer("ada", Role.ADMIN), guarded.token("bob", Role.EDITOR)
    bearer, browser = guarded.client(authorization=f"Bearer {secret}"), guarded.client()
    assert browser.post("/session", json={"token": secret}).json()["name"] == "bob"
    assert bearer.get("/runs").status_code == browser.get("/runs").status_code == 200
    revoked = admin.delete(f"/tokens/{secret.split('_')[1]}")
    assert (revoked.status_code, revoked.json()["is_good"]) == (200, False)
    assert "was revoked" in bearer.get("/runs").json()["detail"]
    assert bearer.get("/runs").status_code == browser.get("/runs").status_code == 401
    assert admin.delete("/tokens/none").status_code == 404


def test_token_when_too_old_or_made_up_then_refused(guarded: Gate) -> None:
    old = guarded.bearer("ada", Role.ADMIN, expires_in_s=-1.0).get("/runs")
    assert (old.status_code, "has expired" in old.json()["detail"]) == (401, True)
    good = guarded.token("ada", Role.ADMIN)
    for wrong in ("x", good[:-1] + ("0" if good[-1] != "0" else "1"), good.replace("lm_", "lms_"), "lm_" + "0" * 77):
        answer = guarded.client(authorization=f"Bearer {wrong}").get("/runs")
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHENTICATED"), wrong


def test_token_when_local_and_wrong_then_refused_although_nobody_need_be_known(local: Gate) -> None:
    assert local.client().get("/runs").status_code == 200
    assert local.client(authorization="Bearer x").get("/runs").status_code == 401


def test_token_when_its_name_or_roles_are_wrong_then_refused(guarded: Gate) -> None:
    admin = guarded.bearer("ada", Role.ADMIN)
    for body in (
        {"name": "planner", "roles": ["viewer"]},
        {"name": "anonymous", "roles": ["viewer"]},
        {"name": "a/b", "roles": ["viewer"]},
        {"name": "bob", "roles": []},
        {"name": "bob", "roles": ["owner"]},
        {"name": "bob", "roles": ["viewer"], "expires_in_s": 0},
    ):
        assert admin.post("/tokens", json=body).status_code == 400, body
    assert len(guarded.planner.access.tokens()) == 1
