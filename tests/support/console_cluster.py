"""A live run for the console's tests: planner, loaders and constructors as processes, and ranks that read slowly."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loadmaster_flight.spec import load_run_spec
from loadmaster_flight.wire.control import StreamView
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.access import Role
from loadmaster_server.cli.access_store import access_in, new_link, opened_store
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster

from . import console_ranks
from .commands import wait_until

RUN = "tides"
WORLD = 4
HURRIED_S = 0.1
"""A step costs 150 ms of CPU: few go by while pages are looked at, and many while a test waits for one."""
NUM_STEPS = 20_000
WEIGHTS = {"web": 0.45, "code": 0.3, "books": 0.2, "notes": 0.05}
WORDS = "the loader reads every manifest and balances weight over hold before flight at dawn"


@dataclass(slots=True)
class ConsoleCluster:
    """A run whose ranks read slowly. One thread calls its methods.

    Attributes:
        url: Of the planner, and so of the console.
        folder: Holds what the ranks write.
    """

    cluster: LocalCluster
    ranks: subprocess.Popen[bytes]
    folder: Path
    run: str = RUN

    @property
    def url(self) -> str:
        return self.cluster.url

    def client(self) -> PlannerClient:
        """Asks the planner as a process of this machine; it may look at everything."""
        return PlannerClient(self.url, timeout_s=10)

    def stream(self) -> StreamView:
        """Where the train stream is."""
        with contextlib.closing(self.client()) as client:
            return client.get(f"/runs/{self.run}/streams/train", StreamView)

    def wait_for_step(self, step: int, *, timeout_s: float = 60.0) -> None:
        """Until all ranks have consumed the steps before this one; they hurry meanwhile."""

        def is_there() -> bool:
            assert self.ranks.poll() is None, self.ranks_log()
            return self.stream().acknowledged >= step

        self.set_pace(HURRIED_S)
        try:
            wait_until(is_there, timeout_s=timeout_s, what=f"step {step} of {self.run}")
        finally:
            self.set_pace(console_ranks.DEFAULT_PACE_S)

    def sign_in_link(self, role: str, name: str) -> str:
        """A one-time link."""
        with opened_store(self.cluster.state_dir) as database:
            return new_link(database, self.url, name, [Role(role)])

    def token(self, role: str, name: str) -> str:
        """An API token."""
        with opened_store(self.cluster.state_dir) as database:
            return access_in(database).create_token(name, [Role(role)], by="tests")[0]

    def lines(self, rank: int) -> list[dict[str, Any]]:
        """What a rank has read: {step, digest, ids, tokens} a step, whole lines only."""
        text = (self.folder / f"{rank}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def set_pace(self, step_s: float) -> None:
        """How long a step of the ranks takes from now on."""
        part = self.folder / "pace.part"
        part.write_text(str(step_s))
        part.replace(self.folder / "pace")

    def hold(self) -> None:
        """Let the ranks stand still."""
        (self.folder / "hold").touch()

    def go_on(self) -> None:
        """Take that back."""
        (self.folder / "hold").unlink(missing_ok=True)

    def kill_planner(self) -> None:
        """As kill -9 does. `revive` starts it again."""
        pid = self.cluster.pids()["planner"]
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: self.cluster.pids()["planner"] == pid and _is_dead(pid), timeout_s=10, what="the planner's end"
        )

    def revive(self) -> None:
        """Start whatever has died again, where it was."""
        self.cluster.supervise()

    def ranks_log(self) -> str:
        """What the ranks complained of."""
        return (self.folder / "ranks.log").read_text()[-2000:]


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def live_cluster(folder: Path, tokenizer_file: Path) -> Iterator[ConsoleCluster]:
    """Starts all of it, and ends all of it."""
    spec = load_run_spec(write_run(folder, tokenizer_file))
    ranks_folder = folder / "ranks"
    ranks_folder.mkdir()
    with LocalCluster(state_dir=folder / "state", size=ClusterSize(loaders=2, constructors=2, workers=1)) as cluster:
        cluster.create_run(spec, freeze_run(spec))
        with (ranks_folder / "ranks.log").open("wb") as log:
            argv = [sys.executable, console_ranks.__file__, cluster.url, RUN, str(WORLD), str(ranks_folder)]
            ranks = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=log)
        live = ConsoleCluster(cluster=cluster, ranks=ranks, folder=ranks_folder)
        try:
            live.wait_for_step(3)
            yield live
        finally:
            live.go_on()
            assert ranks.stdin is not None
            ranks.stdin.close()
            try:
                ranks.wait(10)
            except subprocess.TimeoutExpired:
                ranks.kill()
                ranks.wait()


def write_run(folder: Path, tokenizer_file: Path) -> Path:
    """Four small sources of JSONL, and the run over them."""
    for seed, name in enumerate(WEIGHTS):
        path = folder / "data" / name / "part.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in _texts(seed, name)))
    spec = {
        "run": RUN,
        "seed": 5,
        "tokenizer": str(tokenizer_file),
        "sources": {
            name: {"uri": str(folder / "data" / name / "part.jsonl"), "transform": {"text": "text"}} for name in WEIGHTS
        },
        "mixture": {"weights": WEIGHTS},
        "batch": {"seq_len": 256, "microbatches": 8, "align": 16},
        "until": {"steps": NUM_STEPS},
        "budgets": {"plan_ahead": 16, "bind_ahead": 6, "build_ahead": 2},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def _texts(seed: int, name: str) -> list[str]:
    rng, words = random.Random(seed), WORDS.split()
    return [
        f"{name} {number}: " + " ".join(rng.choice(words) for _ in range(max(3, int(rng.lognormvariate(3.2, 0.6)))))
        for number in range(600)
    ]
