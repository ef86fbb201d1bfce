"""One rank of a real job is killed and restarted alone: the others learn of it, and all go on together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadmaster.digest import record_digest
from loadmaster_flight.wire.control import StreamView
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.launch import LocalCluster
from support.commands import FetchProcess, loadmaster_command, run_command, wait_until

pytestmark = pytest.mark.processes
STEPS = 60
WORLD = 2


@pytest.fixture
def fetch(tmp_path: Path) -> Iterator[Callable[[str, int], FetchProcess]]:
    """Starts one rank, which keeps its state and output over restarts."""
    with ExitStack() as stack:

        def start(url: str, rank: int) -> FetchProcess:
            files = {"state": tmp_path / f"{rank}.state", "output": tmp_path / f"{rank}.jsonl"}
            process = FetchProcess(url, rank=rank, world_size=WORLD, **files)
            stack.callback(process.process.kill)
            return process

        yield start


def test_rank_when_killed_and_restarted_alone_then_the_others_are_told_and_all_go_on(
    frozen: Callable[..., Any], start_cluster: Callable[..., LocalCluster], fetch: Callable[[str, int], FetchProcess]
) -> None:
    spec, manifests = frozen(until={"steps": STEPS})
    url = start_cluster(spec, manifests, loaders=1, constructors=2).url
    ranks = [fetch(url, rank) for rank in range(WORLD)]
    wait_until(lambda: len(ranks[1].steps()) >= 10, timeout_s=60, what="10 steps of rank 1")
    ranks[1].kill()
    assert_named(url, rank=1)
    step = agree_on_one_step(ranks)
    again = fetch(url, 1)
    _out, error = ranks[0].process.communicate(timeout=30)
    assert ranks[0].process.returncode == 2
    assert "is over: rank 1 joined again" in error.decode()
    assert "start again from your last checkpoint" in error.decode()
    both = [fetch(url, 0), again]
    for rank in both:
        rank.finish()
    assert 0 < step < STEPS
    with EmbeddedRun(spec, manifests, dp=WORLD) as run:
        for plan, batches in run:
            for rank in range(WORLD):
                found = {line["digest"] for line in both[rank].steps() if line["step"] == plan.step}
                assert found == {record_digest(batches[rank])}, f"step {plan.step} of rank {rank}"


def assert_named(url: str, *, rank: int) -> None:
    """The API and the shell say which rank is waited for."""
    planner = PlannerClient(url)
    path = "/runs/small/streams/train"
    wait_until(lambda: bool(planner.get(path, StreamView).ranks), timeout_s=30, what="the rank to be named")
    view = planner.get(path, StreamView)
    planner.close()
    assert [(one.rank, one.state) for one in view.ranks] == [(rank, "silent")]
    text = run_command(loadmaster_command("status", url))
    assert f"    waiting for rank {rank}, last seen " in text
    tree = json.loads(run_command(loadmaster_command("status", url, "--json")))
    assert tree["runs"][0]["streams"][0]["ranks"][0]["last_seen_s"] >= 5


def agree_on_one_step(ranks: list[FetchProcess]) -> int:
    """What a trainer's checkpoint does: all ranks save the same step."""
    states = [json.loads(rank.state.read_text()) for rank in ranks]
    step = min(state["step"] for state in states)
    for rank, state in zip(ranks, states, strict=True):
        rank.state.write_text(json.dumps({**state, "step": step}))
    return int(step)
