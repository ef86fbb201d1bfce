"""A loader as a real process: it says when it is ready, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from loadmaster_flight.loader.process import main
from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.tickets import MeasureTicket, sign

pytestmark = pytest.mark.processes
END_S = 20.0
PROGRAM = "import sys; from loadmaster_flight.loader.process import main; sys.exit(main(sys.argv[1:]))"

StartLoader = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def ready_file(tmp_path: Path) -> Path:
    return tmp_path / "loader.ready.json"


@pytest.fixture
def start_loader(ready_file: Path, tmp_path: Path) -> Iterator[StartLoader]:
    """Starts loaders and kills what is left of them at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(planner_url: str, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", PROGRAM, "--planner", planner_url, "--state-dir", str(tmp_path), "--workers", "1"]
        argv += ["--ready-file", str(ready_file), *arguments]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with (tmp_path / "loader.log").open("ab") as log:
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(END_S)
        if process.stdin:
            process.stdin.close()


def ready_address(ready_file: Path, process: subprocess.Popen[bytes], wait_until: Any) -> str:
    wait_until(lambda: ready_file.exists() or process.poll() is not None, "the loader to be ready", 60.0)
    facts = json.loads(ready_file.read_text())
    assert facts["pid"] == process.pid
    return str(facts["address"])


def assert_port_is_closed(address: str) -> None:
    parts = urlsplit(address)
    with socket.socket() as probe:
        assert probe.connect_ex((parts.hostname, parts.port)) != 0


def measured_rows(planner: Any, address: str) -> int:
    ticket = MeasureTicket(
        run="small", source=0, epoch=0, cursors=[[0, 0, 0, 0]], rows_per_lane=5, expires_at=time.time() + 60
    )
    with FlightPeer(address) as peer:
        return int(peer.read_all(sign(ticket, planner.key), timeout_s=60).num_rows)


def test_loader_when_terminated_leaves_the_planner_and_frees_its_port(
    make_planner: Any, make_run: Any, start_loader: StartLoader, ready_file: Path, wait_until: Any
) -> None:
    planner = make_planner(make_run())
    process = start_loader(planner.url)
    address = ready_address(ready_file, process, wait_until)
    assert measured_rows(planner, address) == 5
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_S) == 0
    assert planner.left == ["/api/v1/actors/loader-1"]
    assert_port_is_closed(address)


def test_loader_when_parent_pipe_ends_stops_and_frees_its_port(
    make_planner: Any, make_run: Any, start_loader: StartLoader, ready_file: Path, wait_until: Any
) -> None:
    process = start_loader(make_planner(make_run()).url, "--parent-pipe")
    address = ready_address(ready_file, process, wait_until)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(END_S) in (0, 3)  # 3: it could not end by itself in time and was ended hard
    assert_port_is_closed(address)


def test_loader_when_planner_is_not_there_waits_and_can_be_terminated(
    start_loader: StartLoader, ready_file: Path, tmp_path: Path, wait_until: Any
) -> None:
    with socket.socket() as held:  # bound, but nobody listens
        held.bind(("127.0.0.1", 0))
        process = start_loader(f"http://127.0.0.1:{held.getsockname()[1]}")
        log = tmp_path / "loader.log"
        wait_until(lambda: "trying on" in log.read_text() or process.poll() is not None, "the complaint", 60.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0
    assert log.read_text().count("trying on") == 1
    assert not ready_file.exists()


def test_loader_when_planner_hangs_can_be_terminated(
    start_loader: StartLoader, ready_file: Path, wait_until: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        process = start_loader(f"http://127.0.0.1:{mute.getsockname()[1]}")
        mute.settimeout(60)
        connection, _ = mute.accept()
        with connection:
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) in (0, 3)  # 3: it was cut off
    assert not ready_file.exists()


def test_main_when_host_is_not_loopback_refuses() -> None:
    with pytest.raises(BadRequestError, match="host must be a loopback address"):
        main(["--planner", "http://127.0.0.1:1", "--host", "0.0.0.0"])
