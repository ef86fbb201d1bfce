"""Processes that end without closing their streams: no crash while the interpreter is taken down, nothing left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadmaster_server.launch import LocalCluster

pytestmark = pytest.mark.processes
SCRIPT = Path(__file__).parents[1] / "support" / "careless_rank.py"


def run_ranks(target: str, world_size: int, *how: str, cwd: Path) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of all ranks, run at the same time."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), target, str(rank), str(world_size), *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
        for rank in range(world_size)
    ]
    ended = [rank.communicate(timeout=120) for rank in ranks]
    return [(rank.returncode, *texts) for rank, texts in zip(ranks, ended, strict=True)]


def test_exit_when_streams_of_a_planner_are_left_open_then_every_rank_ends_well(
    frozen: Callable[..., Any], start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(*frozen(until={"steps": 100_000}), loaders=1, constructors=1)
    for _ in range(2):
        assert run_ranks(cluster.url, 4, cwd=tmp_path) == [(0, "[0, 1, 2]\n", "")] * 4


def test_exit_when_the_training_loop_fails_then_its_own_exit_code_and_words_come_out(
    frozen: Callable[..., Any], start_cluster: Callable[..., LocalCluster], tmp_path: Path
) -> None:
    cluster = start_cluster(*frozen(until={"steps": 100_000}), loaders=1, constructors=1)
    assert run_ranks(cluster.url, 2, "fail", cwd=tmp_path) == [(1, "[0, 1, 2]\n", "failed after 2\n")] * 2


def test_exit_when_embedded_streams_are_left_open_then_every_process_ends_well(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    spec = make_run(until={"steps": 100_000})
    for _ in range(5):
        assert run_ranks(str(spec), 1, cwd=tmp_path) == [(0, "[0, 1, 2]\n", "")]
