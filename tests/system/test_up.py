"""`loadmaster up` as somebody's child."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.commands import is_alive, is_listening, start_up, wait_until


@pytest.mark.processes
def test_up_when_its_parent_pipe_ends_then_all_of_it_ends(make_run: Callable[..., Path], tmp_path: Path) -> None:
    process, facts = start_up(make_run(), tmp_path / "state", "--parent-pipe", stdin=subprocess.PIPE)
    try:
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)
        wait_until(lambda: not any(map(is_alive, facts["pids"].values())), timeout_s=10, what="all children to end")
        assert not is_listening(facts["url"])
    finally:
        process.kill()
        process.wait()
