"""`loadmaster planner` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, JoinReply, JoinRequest, RunView
from loadmaster_flight.wire.errors import LoadmasterError, UnavailableError
from loadmaster_flight.wire.http import PlannerClient
from support.synthetic import DEADLINE_S, wait_for

pytestmark = pytest.mark.processes
START = "import sys; from loadmaster_server.cli.planner import main; sys.exit(main(sys.argv[1:]))"
BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts planner processes; none outlives the test."""
    children: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", START, "--state-dir", str(tmp_path / "state"), *args]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        children.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.communicate()


def _ready(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = wait_for(lambda: path.exists() and json.loads(path.read_text()), what="the planner")
    return facts


def test_process_when_terminated_with_long_polls_open_then_ends_with_zero(
    spawn: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, make_run: Callable[..., CreateRunRequest]
) -> None:
    child = spawn("--ready-file", str(tmp_path / "ready"))
    facts = _ready(tmp_path / "ready")
    assert facts["pid"] == child.pid
    client = PlannerClient(facts["url"])
    client.post("/runs", make_run(), RunView)
    path = "/runs/run/streams/train"
    client.post(f"{path}/join", JoinRequest(rank=0, world_size=1, nonce="n"), JoinReply)
    is_asking = threading.Event()

    def poll() -> None:
        is_asking.set()
        try:
            client.request("GET", f"{path}/generations/0/plans", query={"first": 0, "last": 1, "wait_s": 20})
        except LoadmasterError:
            pass
        client.close()

    thread = threading.Thread(target=poll)
    thread.start()
    assert is_asking.wait(DEADLINE_S)
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    thread.join(DEADLINE_S)
    client.close()


def test_process_when_the_parents_pipe_ends_then_ends(
    spawn: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    child = spawn("--ready-file", str(tmp_path / "ready"), "--parent-pipe")
    _ready(tmp_path / "ready")
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) in (0, 3)
    child.stdin = None


@pytest.mark.parametrize("database", BOTH)
def test_process_when_killed_and_started_again_then_the_run_is_there(
    spawn: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
    make_run: Callable[..., CreateRunRequest],
    request: pytest.FixtureRequest,
    database: str,
) -> None:
    options = _at(database, request)
    first = spawn("--ready-file", str(tmp_path / "first"), *options)
    client = PlannerClient(_ready(tmp_path / "first")["url"])
    client.post("/runs", make_run(), RunView)
    client.close()
    first.kill()
    first.wait(60)
    spawn("--ready-file", str(tmp_path / "second"), *options)
    client = PlannerClient(_ready(tmp_path / "second")["url"])
    assert client.get("/runs/run", RunView).run == "run"
    client.close()


@pytest.mark.parametrize("database", BOTH)
def test_process_when_stopped_by_a_signal_then_a_second_takes_over_and_it_writes_nothing_once_it_wakes(
    spawn: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
    make_run: Callable[..., CreateRunRequest],
    request: pytest.FixtureRequest,
    database: str,
) -> None:
    options = ["--planner-lease-s", "2", *_at(database, request)]
    first = spawn("--ready-file", str(tmp_path / "first"), *options)
    one = PlannerClient(_ready(tmp_path / "first")["url"])
    one.post("/runs", make_run(), RunView)
    spawn("--ready-file", str(tmp_path / "second"), *options)
    two = PlannerClient(_ready(tmp_path / "second")["url"])
    with pytest.raises(UnavailableError, match=f"stands by: {one.url}"):
        two.request("GET", "/runs")
    first.send_signal(signal.SIGSTOP)
    wait_for(lambda: _answers(two), what="the second to take over")
    first.send_signal(signal.SIGCONT)
    with pytest.raises(UnavailableError, match=r"could not renew its lease|stands by"):
        one.post("/runs", make_run("late"), RunView)
    wait_for(lambda: _holder(one).startswith(two.url), what="the first to know who acts")
    assert [view["run"] for view in json.loads(two.request("GET", "/runs"))] == ["run"]
    one.close()
    two.close()


def _at(database: str, request: pytest.FixtureRequest) -> list[str]:
    """Options of a planner: SQLite in its folder, or PostgreSQL."""
    return ["--database-url", request.getfixturevalue("postgres_url")] if database == "postgres" else []


def _answers(client: PlannerClient) -> bool:
    try:
        return bool(client.request("GET", "/runs"))
    except UnavailableError:
        return False


def _holder(client: PlannerClient) -> str:
    """Who acts, as a planner that stands by says."""
    with pytest.raises(UnavailableError) as refused:
        client.request("GET", "/runs")
    return str(refused.value.details.get("holder", ""))


def test_process_when_host_is_not_loopback_then_says_so_and_ends_with_two(
    spawn: Callable[..., subprocess.Popen[bytes]],
) -> None:
    child = spawn("--host", "0.0.0.0")
    _, error = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 2
    assert b"host must be a loopback address" in error
    assert b"Traceback" not in error
