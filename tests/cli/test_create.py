from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadmaster_flight.wire.control import RunView
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.cli.create import main
from loadmaster_server.serving import PlannerServer
from loadmaster_server.settings import PlannerSettings


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[PlannerClient]:
    with PlannerServer(PlannerSettings(state_dir=tmp_path / "state")) as server:
        client = PlannerClient(server.url)
        yield client
        client.close()


def test_create_when_repeated_then_the_run_is_there_once(spec_file, planner, capsys):
    argv = [str(spec_file()), "--planner", planner.url]
    assert [main(argv), main(argv)] == [0, 0]
    assert capsys.readouterr().out.splitlines() == [f"run test is at {planner.url}  idle  streams train"] * 2
    definition = json.loads(planner.request("GET", "/runs/test/definition"))
    assert [manifest["name"] for manifest in definition["manifests"]] == ["web", "chat"]


def test_create_when_json_then_the_run_is_one_object(spec_file, planner, capsys):
    assert main([str(spec_file()), "--planner", planner.url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], told["streams"]) == ("test", ["train"])
    assert planner.get("/runs/test", RunView).state == "idle"


def test_create_when_the_spec_has_changed_then_what_differs_is_named(spec_file, planner, capsys):
    assert main([str(spec_file()), "--planner", planner.url]) == 0
    assert main([str(spec_file(("web: 3", "web: 2"))), "--planner", planner.url]) == 2
    assert capsys.readouterr().err.startswith("loadmaster create: run 'test' is frozen and differs: spec.mixture")


def test_create_when_a_source_is_missing_then_the_line_is_named_and_there_is_no_run(spec_file, planner, capsys):
    assert main([str(spec_file(("data/web/", "data/wep/"))), "--planner", planner.url]) == 2
    assert capsys.readouterr().err.startswith("loadmaster create: RUN.yaml:5: source web: ")
    assert json.loads(planner.request("GET", "/runs")) == []


def test_create_when_the_url_is_wrong_then_told_before_any_source_is_opened(spec_file, capsys):
    assert main([str(spec_file(("data/web/", "data/wep/"))), "--planner", "127.0.0.1:8700"]) == 2
    assert "url must look like http://host:port" in capsys.readouterr().err


def test_create_when_no_planner_answers_then_told_after_the_timeout(spec_file, capsys):
    argv = [str(spec_file()), "--planner", "http://127.0.0.1:1", "--timeout-s", "0.1"]
    assert main(argv) == 2
    assert "planner http://127.0.0.1:1: POST /runs" in capsys.readouterr().err
