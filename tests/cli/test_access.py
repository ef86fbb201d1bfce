"""Tokens and sign-in links from the shell, on the store of a planner that runs."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadmaster.cli import main
from loadmaster_flight.wire.control import RunView, from_json
from loadmaster_flight.wire.errors import UnauthenticatedError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.access import AccessMode
from loadmaster_server.serving import PlannerServer
from loadmaster_server.settings import PlannerSettings


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PlannerServer]:
    """A planner that wants to know who asks."""
    with PlannerServer(PlannerSettings(state_dir=tmp_path, access=AccessMode.TOKEN)) as running:
        yield running


def _runs(client: PlannerClient) -> list[RunView]:
    return [from_json(RunView, view) for view in json.loads(client.request("GET", "/runs"))]


def _printed(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    assert main([str(word) for word in argv]) == 0
    return capsys.readouterr().out.strip()


def test_token_when_created_then_the_environment_variable_opens_until_it_is_revoked(
    server: PlannerServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--state-dir", tmp_path]
    made = _printed(
        capsys, "token", "create", "--name", "trainer", "--role", "process", "--days", "1", "--json", *where
    )
    token = json.loads(made)
    monkeypatch.setenv("LOADMASTER_TOKEN", token["token"])
    client = PlannerClient(server.url)
    assert _runs(client) == []
    rows = json.loads(_printed(capsys, "token", "list", "--json", *where))
    assert [(row["name"], row["roles"], row["is_good"]) for row in rows] == [("trainer", ["process"], True)]
    assert "trainer" in _printed(capsys, "token", "list", *where)
    assert "opens nothing" in _printed(capsys, "token", "revoke", token["id"], *where)
    server.planner.access._forget()
    with pytest.raises(UnauthenticatedError, match="was revoked"):
        _runs(client)
    client.close()


def test_token_when_kept_in_a_file_then_made_once_and_again_after_it_was_revoked(
    server: PlannerServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "process"
    create = ["token", "create", "--name", "loaders", "--role", "process", "--keep", file, "--json"]
    create += ["--state-dir", tmp_path]
    first = _printed(capsys, *create)
    secret = file.read_text()
    assert secret.strip() not in first
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(_printed(capsys, *create))["id"] == json.loads(first)["id"]
    assert file.read_text() == secret
    _printed(capsys, "token", "revoke", json.loads(first)["id"], "--state-dir", tmp_path)
    assert json.loads(_printed(capsys, *create))["id"] != json.loads(first)["id"]
    assert file.read_text() != secret
    client = PlannerClient(server.url, token=file.read_text().strip())
    assert _runs(client) == []
    client.close()


def test_token_when_the_environment_names_the_store_then_no_option_is_needed(
    server: PlannerServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _printed(capsys, "token", "create", "--name", "ada", "--role", "viewer", "--json", "--state-dir", tmp_path)
    monkeypatch.setenv("LOADMASTER_DATABASE_URL", server.seat.settings.store_url)
    rows = json.loads(_printed(capsys, "token", "list", "--json"))
    assert [row["id"] for row in rows] == [json.loads(made)["id"]]


def test_client_when_no_token_is_set_then_refused_with_the_way_in(server: PlannerServer) -> None:
    client = PlannerClient(server.url)
    with pytest.raises(UnauthenticatedError, match=r"loadmaster sign-in.*LOADMASTER_TOKEN"):
        _runs(client)
    client.close()


def test_sign_in_when_a_planner_acts_then_a_link_to_it_that_works_once(
    server: PlannerServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = _printed(capsys, "sign-in", "--state-dir", tmp_path, "--role", "editor", "--name", "ada")
    page, _, code = link.partition("#code=")
    assert page == f"{server.url}/sign-in"
    grant = server.planner.access._taken(code)
    assert (grant.name, grant.roles) == ("ada", ("editor",))
    with pytest.raises(UnauthenticatedError):
        server.planner.access._taken(code)


def test_sign_in_when_no_planner_was_ever_there_then_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sign-in", "--state-dir", str(tmp_path)]) == 2
    assert f"there is no planner.db in {tmp_path}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sign_in_when_no_planner_acts_then_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with PlannerServer(PlannerSettings(state_dir=tmp_path)):
        pass
    assert main(["sign-in", "--state-dir", str(tmp_path)]) == 2
    assert "no planner acts" in capsys.readouterr().err
