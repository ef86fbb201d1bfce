"""Real processes killed by real signals: a rerun with the saved state continues at the next step."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadmaster.digest import record_digest
from loadmaster_server.embedded import EmbeddedRun
from support.commands import FetchProcess, is_alive, is_listening, start_up, wait_until

pytestmark = pytest.mark.processes
STEPS = 60
WORLD = 2


@pytest.fixture
def expected(frozen: Callable[..., Any]) -> list[list[str]]:
    """Digest by step and rank of the run that nobody interrupts."""
    with EmbeddedRun(*frozen(until={"steps": STEPS}), dp=WORLD) as run:
        return [[record_digest(batches[rank]) for rank in range(WORLD)] for _plan, batches in run]


@pytest.fixture
def up(make_run: Callable[..., Path], tmp_path: Path) -> Iterator[Callable[[], tuple[Any, dict[str, Any]]]]:
    """Starts `loadmaster up`, again and again on the same state directory."""
    run, processes = make_run(until={"steps": STEPS}), []

    def start() -> tuple[Any, dict[str, Any]]:
        process, facts = start_up(run, tmp_path / "state", "--loaders", "2")
        processes.append(process)
        return process, facts

    yield start
    for process in processes:
        process.terminate()
        process.wait(20)


@pytest.fixture
def fetchers(tmp_path: Path) -> Iterator[Callable[[str], list[FetchProcess]]]:
    """Starts all ranks; each keeps its state and output over restarts."""
    started: list[FetchProcess] = []

    def start(url: str) -> list[FetchProcess]:
        ranks = [
            FetchProcess(
                url,
                rank=rank,
                world_size=WORLD,
                state=tmp_path / f"{rank}.state",
                output=tmp_path / f"{rank}.jsonl",
            )
            for rank in range(WORLD)
        ]
        started.extend(ranks)
        return ranks

    yield start
    for rank in started:
        rank.process.kill()


def agree_on_one_step(ranks: list[FetchProcess]) -> int:
    """What a trainer's checkpoint does: all ranks save the same step."""
    states = [json.loads(rank.state.read_text()) for rank in ranks]
    step = min(state["step"] for state in states)
    for rank, state in zip(ranks, states, strict=True):
        rank.state.write_text(json.dumps({**state, "step": step}))
    return step


def assert_delivered(ranks: list[FetchProcess], expected: list[list[str]]) -> None:
    """Every step arrived on every rank with the very bytes of the uninterrupted run."""
    for index, rank in enumerate(ranks):
        by_step: dict[int, set[str]] = {}
        for line in rank.steps():
            by_step.setdefault(line["step"], set()).add(line["digest"])
        assert by_step == {step: {digests[index]} for step, digests in enumerate(expected)}


def test_rank_when_killed_then_all_resume_at_the_saved_step(
    up: Callable[[], Any], fetchers: Callable[[str], list[FetchProcess]], expected: list[list[str]]
) -> None:
    _process, facts = up()
    ranks = fetchers(facts["url"])
    wait_until(lambda: len(ranks[1].steps()) >= 20, timeout_s=60, what="20 steps of rank 1")
    for rank in ranks:
        rank.kill()
    step = agree_on_one_step(ranks)
    assert 0 < step < STEPS
    for rank in (again := fetchers(facts["url"])):
        rank.finish()
    assert_delivered(again, expected)


def test_up_when_killed_then_nothing_is_left_and_a_rerun_continues(
    up: Callable[[], Any], fetchers: Callable[[str], list[FetchProcess]], expected: list[list[str]]
) -> None:
    process, facts = up()
    shared_memory = set(os.listdir("/dev/shm"))
    ranks = fetchers(facts["url"])
    wait_until(lambda: min(len(rank.steps()) for rank in ranks) >= 20, timeout_s=60, what="20 steps")
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(map(is_alive, facts["pids"].values())), timeout_s=5, what="all children to end")
    assert not is_listening(facts["url"])
    assert set(os.listdir("/dev/shm")) <= shared_memory
    for rank in ranks:
        rank.kill()
    agree_on_one_step(ranks)
    _process, facts = up()
    for rank in (again := fetchers(facts["url"])):
        rank.finish()
    assert_delivered(again, expected)
