"""The command line of a training node."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any

import pytest

from loadmaster.cli import commands
from loadmaster.cli.commands import main
from loadmaster_flight.wire.control import RankView
from loadmaster_flight.wire.errors import RunPausedError
from support.services import FakePlanner

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def planner(make_planner: Callable[..., FakePlanner], make_constructor: Callable[..., Any]) -> FakePlanner:
    planner = make_planner(num_steps=6)
    make_constructor(planner)
    return planner


def lines_of(capsys: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_fetch_when_json_then_each_step_is_a_line(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["fetch", planner.url, "--run", "demo", "--rank", "0", "--steps", "3", "--json"]) == 0
    found = lines_of(capsys)
    assert [line["step"] for line in found] == [0, 1, 2]
    assert set(found[0]) == {"step", "sample_ids", "num_tokens", "digest", "wait_ms"}
    assert len({line["digest"] for line in found}) == 3
    assert len(found[0]["sample_ids"]) == 3


def test_fetch_when_steps_are_not_given_then_it_goes_to_the_end(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["fetch", planner.url, "--json"]) == 0
    assert [line["step"] for line in lines_of(capsys)] == list(range(6))


def test_fetch_when_it_keeps_a_state_then_the_next_one_goes_on(
    planner: FakePlanner, capsys: Capture, tmp_path: Path
) -> None:
    argv = ["fetch", planner.url, "--steps", "2", "--json", "--state", str(tmp_path / "state.json")]
    assert [main(argv), main(argv)] == [0, 0]
    assert [line["step"] for line in lines_of(capsys)] == [0, 1, 2, 3]
    assert json.loads((tmp_path / "state.json").read_text())["step"] == 4


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_fetch_when_the_state_file_is_not_ours_then_one_line_says_so(
    text: str, planner: FakePlanner, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    assert main(["fetch", planner.url, "--state", str(path)]) == 2
    assert f"--state {path} must be a file that fetch has written" in capsys.readouterr().err


def test_fetch_when_for_people_then_the_summary_has_speed_and_wait(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["fetch", planner.url, "--steps", "4"]) == 0
    text = capsys.readouterr().err
    assert "step 4/4" in text
    assert "tokens/s" in text
    assert "ms a step" in text


def test_fetch_when_it_fails_then_one_line_says_why(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["fetch", planner.url, "--run", "other"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("loadmaster: there is no run 'other'")
    assert err.count("\n") == 1


def test_status_when_asked_then_streams_and_shares_are_shown(planner: FakePlanner, capsys: Capture) -> None:
    planner.waiting_text = "waiting for rank 3, last seen 40 s ago"
    assert main(["status", planner.url]) == 0
    text = capsys.readouterr().out
    assert "planned 6 (the end)" in text
    assert "    waiting for rank 3, last seen 40 s ago\n" in text
    assert "75.00% (target now  50.00%)" in text
    assert "1,200 bad, the last: no JPEG" in text


def test_status_when_json_then_ranks_that_others_wait_for_are_listed(planner: FakePlanner, capsys: Capture) -> None:
    planner.behind = [RankView(rank=3, last_seen_s=40.0, acknowledged=17, state="silent")]
    assert main(["status", planner.url, "--json"]) == 0
    stream = lines_of(capsys)[0]["runs"][0]["streams"][0]
    assert stream["ranks"] == [{"rank": 3, "last_seen_s": 40.0, "acknowledged": 17, "state": "silent"}]


def test_status_when_asked_then_processes_are_shown_with_what_they_did(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["status", planner.url]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("constructor-0 ")
    assert "pid 4711" in line
    assert line.endswith("heard  0.2 s ago  steps built 1,234  ready 1.5 MiB")


def test_resume_when_the_run_is_the_only_one_then_it_goes_on(planner: FakePlanner, capsys: Capture) -> None:
    planner.plan_fault = RunPausedError("source prose has 25 bad rows in the last 100")
    assert main(["resume", planner.url]) == 0
    assert capsys.readouterr().out == "demo  open\n"
    assert planner.plan_fault is None


def test_resume_when_json_then_the_run_is_one_object(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["resume", planner.url, "--run", "demo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "open"


def test_resume_when_there_is_no_such_run_then_one_line_says_so(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["resume", planner.url, "--run", "other"]) == 2
    assert capsys.readouterr().err == "loadmaster: there is no run 'other'\n"


def test_status_when_json_then_it_is_one_list(planner: FakePlanner, capsys: Capture) -> None:
    assert main(["status", planner.url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"][0]["run"] == "demo"
    assert told["runs"][0]["streams"][0]["source_tokens"] == [300, 100]
    assert told["runs"][0]["streams"][0]["left_out"][0]["count"] == 1200
    assert told["actors"][0]["stats"] == {"steps_built": 1234, "built_bytes": 3 << 19}


def test_main_when_the_command_is_unknown_then_a_near_one_is_suggested(capsys: Capture) -> None:
    assert main(["fetsh"]) == 2
    assert "no such command 'fetsh': did you mean 'fetch'?" in capsys.readouterr().err


def test_main_when_asked_for_help_then_commands_are_listed(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    assert "fetch" in capsys.readouterr().out
    assert main([]) == 2


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], int | None]], None]:
    def add(command: Callable[[list[str]], int | None]) -> None:
        entry = EntryPoint("extra", "somewhere:main", commands.COMMANDS_GROUP)
        monkeypatch.setattr(EntryPoint, "load", lambda self: command)
        monkeypatch.setattr(commands, "entry_points", lambda **_: [entry])

    return add


def test_main_when_another_package_brings_the_command_then_it_gets_the_arguments(
    add_command: Callable[..., None],
) -> None:
    got: list[str] = []
    add_command(lambda argv: got.extend(argv))
    assert main(["extra", "--flag", "x"]) == 0
    assert got == ["--flag", "x"]


def test_main_when_a_package_is_missing_then_the_extra_is_named(
    add_command: Callable[..., None], capsys: Capture
) -> None:
    def command(argv: list[str]) -> int:
        raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")

    add_command(command)
    assert main(["extra"]) == 2
    assert 'extra needs fastapi, which is missing: pip install "loadmaster[server]"' in capsys.readouterr().err


def test_main_when_interrupted_then_it_ends_without_a_traceback(
    add_command: Callable[..., None], capsys: Capture
) -> None:
    def command(argv: list[str]) -> int:
        raise KeyboardInterrupt

    add_command(command)
    assert main(["extra"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_version_when_asked_then_the_installed_one_is_printed(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"loadmaster {version('loadmaster')}\n"
