"""State of ranks that have fetched ahead unequally, and steps that are left out, beside the reference."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import loadmaster
from loadmaster.digest import record_digest
from loadmaster_flight.wire.control import StreamView
from loadmaster_flight.wire.errors import BadRequestError, LoadmasterError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.launch import ClusterSize, LocalCluster
from support.commands import wait_until

STEPS, WORLD = 40, 2
Taken = tuple[list[tuple[int, str]], dict[str, Any]]
BUDGETS = {"plan_ahead": 10, "bind_ahead": 6, "build_ahead": 2}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Processes that serve the runs of all tests here."""
    with LocalCluster(state_dir=tmp_path_factory.mktemp("state"), size=ClusterSize(loaders=1, constructors=2)) as it:
        yield it


@pytest.fixture
def expected(frozen: Callable[..., Any], request: pytest.FixtureRequest) -> list[list[str]]:
    """Digest by step and rank of the run that nobody interrupts."""
    with EmbeddedRun(*frozen(run=_name(request), until={"steps": STEPS}, budgets=BUDGETS), dp=WORLD) as run:
        return [[record_digest(batches[rank]) for rank in range(WORLD)] for _plan, batches in run]


@pytest.fixture
def run(cluster: LocalCluster, frozen: Callable[..., Any], request: pytest.FixtureRequest) -> str:
    """Name of a run of this test's own."""
    cluster.create_run(*frozen(run=_name(request), until={"steps": STEPS}, budgets=BUDGETS))
    return _name(request)


def _name(request: pytest.FixtureRequest) -> str:
    return f"run-{zlib.crc32(request.node.name.encode())}"


def take(
    url: str, run: str, *, num: int | None = None, prefetch: tuple[int, int] = (2, 2), **options: Any
) -> list[Taken]:
    """What each rank gets (step, digest), and the state that it would save after the last of it."""

    def one(rank: int) -> Taken:
        place = {"run": run, "rank": rank, "world_size": WORLD, "prefetch": prefetch[rank], "framework": "numpy"}
        with loadmaster.connect(url, **place, **options) as stream:
            return [(batch.step, batch.digest()) for batch in islice(stream, num)], stream.state_dict()

    with ThreadPoolExecutor(WORLD) as pool:
        return list(pool.map(one, range(WORLD)))


def _of(expected: list[list[str]], rank: int, steps: list[int]) -> list[tuple[int, str]]:
    return [(step, expected[step][rank]) for step in steps]


@pytest.mark.processes
def test_checkpoint_when_ranks_have_fetched_ahead_unequally_then_names_one_step_and_nothing_is_lost(
    cluster: LocalCluster, run: str, expected: list[list[str]]
) -> None:
    before = take(cluster.url, run, num=11, prefetch=(1, 9))
    states = [state for _, state in before]
    assert states[0] == states[1] == {"run": run, "stream": "train", "generation": 0, "step": 11}
    after = take(cluster.url, run, prefetch=(9, 1), resume=states[0])
    for rank in range(WORLD):
        assert before[rank][0] + after[rank][0] == _of(expected, rank, list(range(STEPS)))


@pytest.mark.processes
def test_skip_when_longer_than_every_horizon_then_every_rank_goes_on_behind_it(
    cluster: LocalCluster, run: str, expected: list[list[str]]
) -> None:
    [(_, state), _] = take(cluster.url, run, num=6)
    before = take(cluster.url, run, num=4, resume=state, skip=(10, 30), prefetch=(1, 9))
    for rank, (taken, saved) in enumerate(before):
        assert taken == _of(expected, rank, [6, 7, 8, 9])
        assert saved == {"run": run, "stream": "train", "generation": 1, "step": 10, "skip": [10, 30]}
    after = take(cluster.url, run, resume=before[0][1])
    for rank, (taken, saved) in enumerate(after):
        assert taken == _of(expected, rank, list(range(30, STEPS)))
        assert saved == {"run": run, "stream": "train", "generation": 2, "step": STEPS}
    planner = PlannerClient(cluster.url)
    path = f"/runs/{run}/streams/train"
    wait_until(lambda: planner.get(path, StreamView).state == "ended", timeout_s=20, what="the stream to be over")
    planner.close()


@pytest.mark.processes
def test_skip_when_it_reaches_the_end_then_every_rank_ends_before_it(
    cluster: LocalCluster, run: str, expected: list[list[str]]
) -> None:
    taken = take(cluster.url, run, skip=(5, STEPS))
    for rank in range(WORLD):
        assert taken[rank][0] == _of(expected, rank, [0, 1, 2, 3, 4])


def test_skip_when_embedded_then_as_with_processes(
    make_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(make_run(until={"steps": STEPS}))
    with loadmaster.connect(path, framework="numpy") as stream:
        whole = [(batch.step, batch.digest()) for batch in stream]
    with loadmaster.connect(path, framework="numpy", skip=[3, 30]) as stream:
        first = [(batch.step, batch.digest()) for batch in islice(stream, 3)]
        state = stream.state_dict()
    assert (state["step"], state["skip"]) == (3, [3, 30])
    with loadmaster.connect(path, framework="numpy", resume=state) as stream:
        rest = [(batch.step, batch.digest()) for batch in stream]
    assert first + rest == whole[:3] + whole[30:]
    with loadmaster.connect(path, framework="numpy", resume=state, skip=()) as stream:
        assert next(stream).step == 3


@pytest.mark.parametrize(
    ("skip", "says"),
    [
        ((4, 9), r"skip must begin at the step to go on at, 5, or after it, got \(4, 9\)"),
        ((9, 9), r"skip must be two steps \(a, b\) with 0 <= a < b, got \[9, 9\]"),
        ((9,), r"skip must be two steps"),
    ],
)
def test_connect_when_skip_is_impossible_then_refused_at_once(skip: tuple[int, ...], says: str) -> None:
    state = {"run": "r", "stream": "train", "generation": 0, "step": 5}
    with pytest.raises(BadRequestError, match=says):
        loadmaster.connect("http://127.0.0.1:9", resume=state, skip=skip)


@pytest.mark.processes
def test_resume_when_beyond_what_was_planned_then_refused_by_name(cluster: LocalCluster, run: str) -> None:
    [(_, state), _] = take(cluster.url, run, num=2)
    with pytest.raises(LoadmasterError, match=r"step must be one that .* generation 0 reached, at most"):
        take(cluster.url, run, resume={**state, "step": STEPS - 1}, num=1)
