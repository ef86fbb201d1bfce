"""The constructor's process: how it starts, announces itself and ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from loadmaster_flight.constructor.process import main
from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.flight import FlightPeer
from support.services import FakePlanner, wait_until

Start = Callable[[], subprocess.Popen[bytes]]
CODE = "import sys; from loadmaster_flight.constructor.process import main; sys.exit(main())"


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    with FakePlanner() as planner:
        yield planner


@pytest.fixture
def start(planner: FakePlanner, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def spawn() -> subprocess.Popen[bytes]:
            argv = [sys.executable, "-c", CODE, "--planner", planner.url, "--parent-pipe"]
            argv += ["--ready-file", str(tmp_path / "ready.json")]
            child = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL))
            stack.callback(child.kill)
            wait_until(lambda: (tmp_path / "ready.json").exists(), "the ready file", deadline_s=60)
            wait_until(lambda: planner.constructors, "registration")
            return child

        yield spawn


@pytest.mark.processes
def test_main_when_started_then_it_announces_where_it_serves(
    start: Start, planner: FakePlanner, tmp_path: Path
) -> None:
    child = start()
    ready = json.loads((tmp_path / "ready.json").read_text())
    assert ready["pid"] == child.pid
    assert [ready["address"]] == list(planner.constructors.values())
    with FlightPeer(ready["address"]) as peer:
        assert peer.action(Action.HEALTH) == {"status": "ok"}


@pytest.mark.processes
def test_main_when_terminated_then_it_takes_leave_and_ends_with_zero(start: Start, planner: FakePlanner) -> None:
    child = start()
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    assert not planner.constructors


@pytest.mark.processes
def test_main_when_the_parents_pipe_closes_then_it_ends(start: Start) -> None:
    child = start()
    assert child.stdin is not None
    child.stdin.close()
    child.wait(60)


def test_main_when_the_host_is_not_loopback_then_it_is_refused() -> None:
    with pytest.raises(BadRequestError, match="loopback"):
        main(["--planner", "http://127.0.0.1:1", "--host", "0.0.0.0"])


def test_main_when_the_planners_url_is_wrong_then_it_is_refused() -> None:
    with pytest.raises(BadRequestError, match="must look like http://host:port"):
        main(["--planner", "ftp://nowhere"])
