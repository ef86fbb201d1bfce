"""Processes are lost, stopped or drained while a trainer reads: what it notices, and that nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

import loadmaster
from loadmaster.cli.actors import list_actors
from loadmaster.digest import record_digest
from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.wire.control import ActorView, Role, StreamView
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.freezing import freeze_run
from loadmaster_server.settings import PlannerSettings
from support.commands import is_alive, wait_until

pytestmark = pytest.mark.processes
STEPS, AT, STEP_S = 24, 6, 0.25
NUM_BOUND = 10
"""Steps that the planner is not there for: fewer than are bound by default, more than are built."""
LEASE_S = PlannerSettings().lease_s
"""Who waited for leases to end would wait for longer; benchmarks/recovery.py has the seconds."""
Act = Callable[[], None]


@pytest.fixture
def shadowed(make_run: Callable[..., Path]) -> Callable[[int], Any]:
    """The run with shadows for each source, frozen."""

    def make(shadows: int) -> Any:
        path = make_run(until={"steps": STEPS})
        tree = yaml.safe_load(path.read_text())
        for source in tree["sources"].values():
            source["shadows"] = shadows
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        spec = load_run_spec(path)
        return spec, freeze_run(spec)

    return make


class Trainer:
    """Reads at a trainer's pace, and notes how long it waited for each step."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.waits_s: list[float] = []
        self.digests: list[str] = []

    def train(self, acts: dict[int, Act]) -> None:
        """Read all steps; before some of them, do something."""
        with loadmaster.connect(self.url, rank=0, world_size=1, framework="numpy") as stream:
            batches = iter(stream)
            for step in range(STEPS):
                if step in acts:
                    acts[step]()
                start_s = time.monotonic()
                self.digests.append(next(batches).digest())
                self.waits_s.append(time.monotonic() - start_s)
                time.sleep(STEP_S)
            assert next(batches, None) is None

    def longest_wait_s(self) -> float:
        """Of the steps from the event on."""
        return max(self.waits_s[AT:])


@pytest.fixture
def planner() -> Iterator[Callable[[str], list[ActorView]]]:
    """Who is there, by the planner at a url."""
    clients: list[PlannerClient] = []

    def actors(url: str) -> list[ActorView]:
        clients.append(PlannerClient(url))
        return list_actors(clients[-1])

    yield actors
    for client in clients:
        client.close()


def _expected(frozen: Any) -> list[str]:
    with EmbeddedRun(*frozen, dp=1) as run:
        return [record_digest(batches[0]) for _plan, batches in run]


def _busiest_loader(actors: list[ActorView]) -> int:
    loaders = [actor for actor in actors if actor.role is Role.LOADER]
    return max(loaders, key=lambda actor: actor.stats.get("pieces_sent", 0.0)).pid


def _warm(actors: list[ActorView]) -> bool:
    loaders = [actor for actor in actors if actor.role is Role.LOADER]
    return all(actor.stats.get("shadow_steps", 0) >= 4 for actor in loaders)


@pytest.mark.parametrize("shadows", [1, 0])
def test_loader_when_killed_then_the_trainer_hardly_waits_and_gets_the_same_bytes(
    shadowed: Any, start_cluster: Any, planner: Any, shadows: int
) -> None:
    frozen = shadowed(shadows)
    cluster = start_cluster(*frozen, loaders=2, constructors=1, workers=1)
    trainer = Trainer(cluster.url)

    def kill() -> None:
        if shadows:
            wait_until(lambda: _warm(planner(cluster.url)), timeout_s=30, what="warm shadows")
            assert all(a.stats["shadow_bytes"] > 0 for a in planner(cluster.url) if a.role is Role.LOADER)
        os.kill(_busiest_loader(planner(cluster.url)), signal.SIGKILL)

    trainer.train({AT: kill})
    print(f"shadows={shadows}: longest wait {trainer.longest_wait_s():.3f} s")
    assert trainer.digests == _expected(frozen)
    assert trainer.longest_wait_s() < LEASE_S
    assert sum(actor.role is Role.LOADER for actor in planner(cluster.url)) == 1


def test_loader_when_stopped_then_its_shadow_is_asked_long_before_the_lease_ends(
    shadowed: Any, start_cluster: Any, planner: Any
) -> None:
    frozen = shadowed(1)
    cluster = start_cluster(*frozen, loaders=2, constructors=1, workers=1)
    trainer, stopped = Trainer(cluster.url), []

    def stop() -> None:
        wait_until(lambda: _warm(planner(cluster.url)), timeout_s=30, what="warm shadows")
        stopped.append(_busiest_loader(planner(cluster.url)))
        os.kill(stopped[0], signal.SIGSTOP)

    try:
        trainer.train({AT: stop})
    finally:
        os.kill(stopped[0], signal.SIGCONT)
    print(f"loader stopped: longest wait {trainer.longest_wait_s():.3f} s")
    assert trainer.digests == _expected(frozen)
    constructors = [actor for actor in planner(cluster.url) if actor.role is Role.CONSTRUCTOR]
    assert sum(actor.stats["asked_of_shadows"] for actor in constructors) > 0
    assert trainer.longest_wait_s() < LEASE_S


def test_constructor_when_killed_then_its_ranks_move_at_once_and_get_the_same_bytes(
    shadowed: Any, start_cluster: Any, planner: Any
) -> None:
    frozen = shadowed(0)
    cluster = start_cluster(*frozen, loaders=1, constructors=2, workers=1)
    trainer = Trainer(cluster.url)

    def kill() -> None:
        constructors = [actor for actor in planner(cluster.url) if actor.role is Role.CONSTRUCTOR]
        os.kill(max(constructors, key=lambda actor: actor.stats.get("steps_built", 0.0)).pid, signal.SIGKILL)

    trainer.train({AT: kill})
    print(f"constructor killed: longest wait {trainer.longest_wait_s():.3f} s")
    assert trainer.digests == _expected(frozen)
    assert trainer.longest_wait_s() < LEASE_S


def test_planner_when_stopped_then_what_is_bound_comes_without_it(shadowed: Any, start_cluster: Any) -> None:
    frozen = shadowed(0)
    cluster = start_cluster(*frozen, loaders=1, constructors=1, workers=1)
    trainer, pid = Trainer(cluster.url), cluster.pids()["planner"]

    def wait_planned() -> None:
        with closing(PlannerClient(cluster.url)) as client:
            path = f"/runs/{frozen[0].run}/streams/train"
            wait_until(lambda: client.get(path, StreamView).planned == STEPS, timeout_s=60, what="all to be planned")

    def signalled(number: signal.Signals) -> Act:
        return lambda: os.kill(pid, number)

    acts = {2: wait_planned, AT: signalled(signal.SIGSTOP), AT + NUM_BOUND: signalled(signal.SIGCONT)}
    try:
        trainer.train(acts)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert trainer.digests == _expected(frozen)


@pytest.mark.parametrize("role", [Role.LOADER, Role.CONSTRUCTOR])
def test_process_when_told_to_end_then_others_have_its_work_first(
    shadowed: Any, start_cluster: Any, planner: Any, role: Role
) -> None:
    frozen = shadowed(0)
    cluster = start_cluster(*frozen, loaders=2, constructors=2, workers=1)
    trainer, ended_s = Trainer(cluster.url), []

    def end() -> None:
        actors = [actor for actor in planner(cluster.url) if actor.role is role]
        work = "pieces_sent" if role is Role.LOADER else "steps_built"
        pid, start_s = max(actors, key=lambda actor: actor.stats.get(work, 0.0)).pid, time.monotonic()
        os.kill(pid, signal.SIGTERM)
        ended_s.extend([pid, start_s])

    trainer.train({AT: end})
    pid, start_s = ended_s
    wait_until(lambda: not is_alive(int(pid)), timeout_s=15, what="the process to end")
    print(f"{role} drained: longest wait {trainer.longest_wait_s():.3f} s, ended by {time.monotonic() - start_s:.1f} s")
    assert trainer.digests == _expected(frozen)
    assert trainer.longest_wait_s() < LEASE_S
    assert sum(actor.role is role for actor in planner(cluster.url)) == 1
