"""Two processes of a gloo group: tp rank 0 fetches, the other gets its bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import loadmaster
from loadmaster_flight.wire.control import JoinReply
from loadmaster_flight.wire.errors import BadRequestError, DataError
from support import broadcast_rank
from support.services import FakePlanner

pytestmark = [pytest.mark.processes, pytest.mark.slow]
Line = dict[str, Any]


@pytest.fixture
def tp_planner(make_planner: Callable[..., FakePlanner], make_constructor: Callable[..., Any]) -> FakePlanner:
    planner = make_planner(num_steps=3, world_size=2)
    planner.mesh, planner.tp_mode = {"pp": 1, "dp": 1, "cp": 1, "tp": 2}, "broadcast"
    make_constructor(planner)
    return planner


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that join one planner after the other."""
    folder = tmp_path_factory.mktemp("ranks")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with ExitStack() as stack:
        processes = []
        for rank in range(2):
            errors = stack.enter_context((folder / f"{rank}.err").open("w"))
            argv = [sys.executable, broadcast_rank.__file__, str(rank), "2", str(folder / "store")]
            process = subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=errors, env=env, text=True)
            processes.append(stack.enter_context(process))
        yield processes
        for process in processes:  # all of them before one is waited for: they end together
            process.stdin.close()  # type: ignore[union-attr]
    assert [process.returncode for process in processes] == [0, 0], (folder / "0.err").read_text()[-2000:]


@pytest.fixture
def run_ranks(ranks: list[subprocess.Popen[str]]) -> Callable[..., list[list[Line]]]:
    """What each of two ranks printed of at most so many steps."""

    def run(url: str, steps: int = 1_000_000) -> list[list[Line]]:
        for process in ranks:
            process.stdin.write(f"{url} {steps}\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
        return [_lines_to_the_end(process) for process in ranks]

    return run


def _lines_to_the_end(process: subprocess.Popen[str]) -> list[Line]:
    lines: list[Line] = []
    while not lines or "end" not in lines[-1]:
        line = process.stdout.readline()  # type: ignore[union-attr]
        assert line, f"rank {process.args[2]} ended"  # type: ignore[index]
        if line.startswith("{"):
            lines.append(json.loads(line))
    return lines


def test_broadcast_when_tp_0_fetches_then_both_ranks_have_its_batches_to_the_end(
    tp_planner: FakePlanner, run_ranks: Callable[..., list[list[Line]]]
) -> None:
    first, second = run_ranks(tp_planner.url)
    assert first == second
    assert [line["step"] for line in first[:-1]] == [0, 1, 2]
    assert first[-1] == {"end": "over", "state": {"run": "demo", "stream": "train", "generation": 1, "step": 3}}
    tickets = {body["rank"] for path, body in tp_planner.requests if path.endswith("/tickets")}
    assert tickets == {0}


def test_broadcast_when_tp_0_meets_an_error_then_both_raise_it(
    tp_planner: FakePlanner, run_ranks: Callable[..., list[list[Line]]]
) -> None:
    tp_planner.loader.faults += [DataError("source prose, shard 0, row 4: cannot be decoded")] * 100
    ends = [lines[-1]["end"] for lines in run_ranks(tp_planner.url, 1)]
    assert ends[0] == ends[1]
    assert "DATA_ERROR" in ends[0]
    assert "row 4: cannot be decoded" in ends[0]


@pytest.mark.parametrize(
    ("tp_mode", "mesh", "says"),
    [
        ("read", {"pp": 1, "dp": 1, "cp": 1, "tp": 2}, "mesh.tp_mode must be broadcast"),
        ("broadcast", {"pp": 1, "dp": 2, "cp": 1, "tp": 1}, "group must be this rank's tp group: it is tp 0 of 1"),
    ],
)
def test_broadcast_when_the_group_is_not_a_broadcasting_tp_group_then_both_are_refused(
    tp_planner: FakePlanner,
    run_ranks: Callable[..., list[list[Line]]],
    tp_mode: str,
    mesh: dict[str, int],
    says: str,
) -> None:
    tp_planner.tp_mode, tp_planner.mesh = tp_mode, mesh
    ends = [lines[-1]["end"] for lines in run_ranks(tp_planner.url, 1)]
    assert all(end.startswith(f"MESH_MISMATCH: {says}") for end in ends), ends


def test_next_when_another_rank_hands_on_then_the_error_says_what_to_use(
    tp_planner: FakePlanner, connect: Callable[..., loadmaster.Stream]
) -> None:
    with pytest.raises(BadRequestError, match=r"this rank is tp 1: use loadmaster\.broadcast"):
        next(connect(tp_planner, rank=1))


def test_through_when_a_batch_was_fetched_then_it_is_too_late(
    make_planner: Callable[..., FakePlanner],
    make_constructor: Callable[..., Any],
    connect: Callable[..., loadmaster.Stream],
) -> None:
    planner = make_planner()
    make_constructor(planner)
    stream = connect(planner)
    next(stream)
    with pytest.raises(BadRequestError, match="before its first batch"):
        stream.through(lambda feed: feed)


@pytest.mark.parametrize(
    ("tp_mode", "tp", "fetches"), [("read", 1, True), ("broadcast", 0, True), ("broadcast", 1, False)]
)
def test_fetches_when_told_by_joining_then_tp_0_always_does(tp_mode: str, tp: int, fetches: bool) -> None:
    assert JoinReply(state="open", coords={"tp": tp}, tp_mode=tp_mode).fetches is fetches
