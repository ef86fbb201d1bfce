"""The `loadmaster` command as real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def loadmaster_command(*args: str) -> list[str]:
    return [sys.executable, "-m", "loadmaster", *args]


def run_command(argv: list[str], *, timeout_s: float = 60) -> str:
    """Run to the end and return what it printed; it must end well."""
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def wait_until(condition: Callable[[], T], *, timeout_s: float, what: str, every_s: float = 0.02) -> T:
    """Poll until `condition` holds, and return what it gave; fails with `what` after the deadline."""
    until_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until_s, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(every_s)
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def is_listening(url: str) -> bool:
    host, port = url.rsplit("/", 1)[1].split(":")
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, int(port))) == 0


def start_up(
    run: Path, state_dir: Path, *args: str, stdin: int = subprocess.DEVNULL
) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """`loadmaster up`, ready: the process and {url, run, pids}."""
    ready = state_dir.with_suffix(".ready")
    ready.unlink(missing_ok=True)
    log = state_dir.with_suffix(".log")
    argv = loadmaster_command("up", str(run), "--state-dir", str(state_dir), "--ready-file", str(ready), *args)
    with log.open("ab") as sink:
        process = subprocess.Popen(argv, stdout=sink, stderr=sink, stdin=stdin)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        return ready.exists()

    wait_until(is_ready, timeout_s=60, what="loadmaster up to be ready")
    return process, json.loads(ready.read_text())


class FetchProcess:
    """`loadmaster fetch --json` of one rank, as a process that can be killed."""

    def __init__(self, url: str, *, rank: int, world_size: int, state: Path, output: Path) -> None:
        self.state, self._output = state, output
        place = ("--rank", str(rank), "--world-size", str(world_size))
        argv = loadmaster_command("fetch", url, *place, "--state", str(state), "--json")
        with output.open("ab") as sink:
            self.process = subprocess.Popen(argv, stdout=sink, stderr=subprocess.PIPE, env={**os.environ})

    def steps(self) -> list[dict[str, Any]]:
        """What it has printed so far, whole lines only."""
        text = self._output.read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def finish(self) -> None:
        _out, error = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, error.decode()
