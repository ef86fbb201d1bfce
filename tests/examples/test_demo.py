"""The demo as a process."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import is_alive, wait_until

DEMO = Path(__file__).parents[2] / "examples/demo.py"
MARK = "LOADMASTER_DEMO_TEST"


@pytest.fixture
def mark() -> Iterator[str]:
    """A word in the environment of everything that the test starts; nothing of it outlives the test."""
    word = secrets.token_hex(8)
    yield word
    for pid in marked(word):
        os.kill(pid, 9)


def marked(word: str) -> list[int]:
    """Processes, alive, that have the word in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"{MARK}={word}".encode() in environment and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found


@pytest.mark.processes
def test_demo_when_killed_then_no_process_is_left(mark: str, tmp_path: Path) -> None:
    env = {**os.environ, MARK: mark, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, str(DEMO), "--ranks", "1", "--loaders", "1"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)

    def is_training() -> bool:
        text = (tmp_path / "log").read_text()
        assert process.poll() is None, text
        return "step    0" in text

    wait_until(is_training, timeout_s=120, what="the demo to train")
    assert len(marked(mark)) >= 6  # demo, up, planner, loader, constructor, rank
    process.kill()
    process.wait()
    wait_until(lambda: not marked(mark), timeout_s=15, what="everything that the demo started to end")
