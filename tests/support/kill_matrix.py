"""The kill matrix: a fault strikes a party while something is going on, and the run comes out as if nothing had been.

A cell is one run of two ranks on a rig of real processes. What it proves: the job ends, every rank has the bytes of the
run that nobody disturbs (from where it went on), `verify` finds every piece delivered exactly once, and no process,
port, file or shared memory of a dead process is left.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from loadmaster.digest import record_digest
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.control import StreamView, from_json
from loadmaster_flight.wire.http import retrying
from loadmaster_flight.wire.ledger import VerifyReport
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.launch.registering import register_run

from .commands import wait_until
from .editing import Editor
from .job import WORLD, Job
from .rig import ASK_S, PLANNER, Rig, strike
from .severing import SeveringProxy

STEPS = 20
AT_STEP = 6
PUBLISH_BY = 14
"""The ranks do not train further than this before a publish has its answer, so that there is a step left to change."""
OUTAGE_S = 3.0
"""Longer than a lease: who is stopped or cut off for so long comes back to find its work done by others."""
CELL_TIMEOUT_S = 180.0
VERIFY_TIMEOUT_S = 60.0
WEIGHTS = {"prose": 0.2, "code": 0.2, "zipped": 0.3, "tarred": 0.3}


class Fault(StrEnum):
    """What happens to a process."""

    KILL = "SIGKILL"
    STOP = "SIGSTOP"
    CUT = "disconnect"


class Party(StrEnum):
    """Whom it happens to."""

    LOADER = "loader"
    SHADOW = "shadow"
    CONSTRUCTOR = "constructor"
    PLANNER = "planner"
    RANK = "rank"
    DATABASE = "database"


class Phase(StrEnum):
    """When: all ranks stand still; a step after the other; while all ranks write a checkpoint; at a publish."""

    IDLE = "idle"
    STREAM = "mid-stream"
    CHECKPOINT = "checkpoint"
    MIXTURE = "mixture"


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    fault: Fault
    party: Party
    phase: Phase

    def __str__(self) -> str:
        return f"{self.fault}-{self.party}-{self.phase}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a cell.

    Attributes:
        attempts: How often the job was started.
        wait_s: Longest wait for a step of a running attempt.
        faults: That `verify` found.
        seconds: From the start of the ranks to their end.
    """

    cell: Cell
    attempts: int
    wait_s: float
    faults: int
    seconds: float
    revision_at: int | None


ALL_CELLS = [Cell(*names) for names in itertools.product(Fault, Party, Phase)]
DIAGONAL = [
    Cell(Fault.KILL, Party.LOADER, Phase.STREAM),
    Cell(Fault.STOP, Party.LOADER, Phase.MIXTURE),
    Cell(Fault.CUT, Party.SHADOW, Phase.IDLE),
    Cell(Fault.KILL, Party.CONSTRUCTOR, Phase.MIXTURE),
    Cell(Fault.STOP, Party.CONSTRUCTOR, Phase.CHECKPOINT),
    Cell(Fault.KILL, Party.PLANNER, Phase.CHECKPOINT),
    Cell(Fault.CUT, Party.PLANNER, Phase.STREAM),
    Cell(Fault.KILL, Party.RANK, Phase.STREAM),
    Cell(Fault.KILL, Party.DATABASE, Phase.MIXTURE),
    Cell(Fault.STOP, Party.DATABASE, Phase.STREAM),
]


@dataclass(slots=True)
class Matrix:
    """Runs cells on a rig, one after the other.

    Args:
        make: Spec and manifests of a run by its name.
    """

    rig: Rig
    make: Callable[[str], tuple[RunSpec, list[SourceManifest]]]
    _reference: dict[int | None, list[list[str]]] = field(default_factory=dict)
    _num_runs: int = 0

    def run(self, cell: Cell) -> Outcome:
        """One cell; AssertionError says what is wrong."""
        self._num_runs += 1
        self.rig.restart_lost()
        name = f"cell-{self._num_runs}"
        spec, manifests = self.make(name)
        register_run(self.rig.url, spec, manifests, timeout_s=30)
        job = Job(self.rig, name, self.rig.folder / name, are_apart=cell.party is Party.RANK)
        start_s = time.monotonic()
        try:
            revision_at = self._disturb(cell, job)
            job.wait(job.has_ended, f"{cell} to end", CELL_TIMEOUT_S)
        finally:
            job.kill()
        seconds = time.monotonic() - start_s
        job.check(self._expected(spec, manifests, revision_at))
        report = self._verify(name)
        assert not report.num_faults, f"{cell}: {report.faults}"
        assert (report.acknowledged, report.read_to) == (STEPS, STEPS), f"{cell}: {report}"
        self.rig.note_shared_memory()
        left = self.rig.leftovers()
        assert not left, f"{cell} left {left}"
        return Outcome(
            cell=cell,
            attempts=job.attempts,
            wait_s=job.longest_wait_s(),
            faults=report.num_faults,
            seconds=seconds,
            revision_at=revision_at,
        )

    def _disturb(self, cell: Cell, job: Job) -> int | None:
        """Start the job, strike at the time, and mend what can be; returns the first step of another mixture."""
        self._set_holds(cell.phase, job)
        job.start()
        job.wait(lambda: self._is_time(cell.phase, job), f"the time of {cell}", CELL_TIMEOUT_S)
        pids, proxies = self._target(cell.party, job)
        publish = Publish(self.rig.url, job.run) if cell.phase is Phase.MIXTURE else None
        if publish is not None:
            publish.start()
        mend = strike(self.rig, pids, cell.fault, proxies)
        if cell.phase is Phase.CHECKPOINT:
            job.go_on()
        if cell.fault is Fault.KILL:
            self.rig.revive(cell.party)
        until_s = time.monotonic() + OUTAGE_S
        job.wait(lambda: time.monotonic() > until_s, "the outage to end", CELL_TIMEOUT_S)
        mend()
        if publish is not None:
            job.wait(publish.has_ended, "the publish to be answered", CELL_TIMEOUT_S)
        job.go_on()
        return None if publish is None else publish.first_step()

    def _set_holds(self, phase: Phase, job: Job) -> None:
        match phase:
            case Phase.IDLE:
                job.hold(AT_STEP)
            case Phase.CHECKPOINT:
                job.hold_saving()
            case Phase.MIXTURE:
                job.hold(PUBLISH_BY)

    def _is_time(self, phase: Phase, job: Job) -> bool:
        match phase:
            case Phase.IDLE:
                return job.is_held()
            case Phase.CHECKPOINT:
                return job.reached() > AT_STEP and job.is_saving()
        return job.reached() > AT_STEP

    def _target(self, party: Party, job: Job) -> tuple[list[int], list[SeveringProxy]]:
        rig = self.rig
        match party:
            case Party.RANK:
                return [job.processes[-1].pid], []
            case Party.DATABASE:
                assert rig.database_proxy is not None, "only a PostgreSQL server can be struck"
                return rig.database_pids(), [rig.database_proxy]
            case Party.PLANNER:
                name = PLANNER
            case _:
                role = "constructor" if party is Party.CONSTRUCTOR else "loader"
                name = rig.owner(job.run, role, standby=party is Party.SHADOW)
        return [rig.members[name].process.pid], [rig.members[name].proxy]

    def _expected(self, spec: RunSpec, manifests: list[SourceManifest], at: int | None) -> list[list[str]]:
        if at not in self._reference:
            spec = spec if at is None else _with_change(spec, at)
            with EmbeddedRun(spec, manifests, dp=WORLD) as run:
                self._reference[at] = [[record_digest(batches[r]) for r in range(WORLD)] for _, batches in run]
        return self._reference[at]

    def _verify(self, run: str) -> VerifyReport:
        what = f"{run} to be acknowledged"
        wait_until(lambda: self._acknowledged(run) == STEPS, timeout_s=VERIFY_TIMEOUT_S, what=what, every_s=ASK_S)
        path, query = f"/runs/{run}/verify", {"stream": "train"}
        lines = retrying(lambda: list(self.rig.client.lines(path, query=query)), deadline_s=VERIFY_TIMEOUT_S)
        return from_json(VerifyReport, json.loads(lines[-1]))

    def _acknowledged(self, run: str) -> int:
        path = f"/runs/{run}/streams/train"
        return retrying(lambda: self.rig.client.get(path, StreamView), deadline_s=VERIFY_TIMEOUT_S).acknowledged


def _with_change(spec: RunSpec, at: int) -> RunSpec:
    """The run whose schedule has the other mixture from the outset."""
    tree, before = spec.to_tree(), spec.mixture.weights
    tree["mixture"]["weights"] = {
        name: [{"at": 0, "value": before[name].at(0)}, {"at": at, "value": value}] for name, value in WEIGHTS.items()
    }
    return RunSpec.model_validate(tree)


class Publish(threading.Thread):
    """Somebody publishes another mixture, and asks again until there is an answer."""

    def __init__(self, url: str, run: str) -> None:
        super().__init__(daemon=True)
        self._editor = Editor(url, run=run)
        self._first_step: int | None = None
        self._last = ""

    def run(self) -> None:
        until_s = time.monotonic() + CELL_TIMEOUT_S
        while self._first_step is None and time.monotonic() < until_s:
            try:
                self._first_step = self._published()
            except (OSError, ValueError, KeyError) as error:
                self._last = repr(error)
                time.sleep(0.1)

    def has_ended(self) -> bool:
        return not self.is_alive()

    def first_step(self) -> int:
        """Of the new mixture, once it has ended."""
        assert self._first_step is not None, f"the publish had no answer: {self._last}"
        return self._first_step

    def _published(self) -> int | None:
        """Once: a publish whose answer was lost is found in the timeline."""
        found = self._editor.ask("GET", "/schedule")
        if found.status != 200:
            raise ValueError(f"{found.status} {found.body}")
        if found.body["revision"] > 0:
            return int(found.body["timeline"][-1]["from_step"])
        answer = self._editor.publish(WEIGHTS)
        self._last = f"{answer.status} {answer.body}"
        return int(answer.body["revision"]["from_step"]) if answer.status == 201 else None
