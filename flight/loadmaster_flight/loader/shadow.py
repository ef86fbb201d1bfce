"""Standing by: the next steps of partitions that other loaders own are kept warm, so that their loss costs none.

A shadow opens the source, follows what every rank has of each stream, and holds the samples of the steps after that.
When it becomes the owner nothing has to be moved: what it holds is in the window that steps are served from.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..wire.control import Lease, StreamProgress
from ..wire.errors import LoadmasterError
from ..wire.http import PlannerClient
from ..wire.step_plan import StepPlan, plans_from_bytes
from ..wire.tls import Tls
from .engine import LoaderEngine
from .entry import Entry, Hold
from .runs import OpenRuns

LOG = logging.getLogger(__name__)
PLANNER_TIMEOUT_S = 5.0
LOOK_S = 1.0
WARM_STEPS = 4
"""A shadow is warm when it holds this many of the next steps, or all that are planned, or as many as fit."""

Triple = tuple[int, int, int]
"""source, k, P"""


class KeptKey(NamedTuple):
    """One step of one partition."""

    stream: str
    generation: int
    step: int
    partition: Triple


class Kept(NamedTuple):
    """Samples that are held; `plan` is the partition's slice."""

    plan: StepPlan
    holds: Sequence[Hold]


class RunShadow:
    """The warm window of one run at one loader. One thread changes it; `warm` and the counts may be read by others.

    Args:
        run: Its name.
        planner: Has the plans.
    """

    def __init__(self, run: str, planner: PlannerClient) -> None:
        self._run, self._planner = run, planner
        self._kept: dict[KeptKey, Kept] = {}
        self._users: Counter[Entry] = Counter()
        self.warm: frozenset[Triple] = frozenset()
        self.size_bytes = self.num_steps = 0

    def follow(
        self, engine: LoaderEngine, standby: frozenset[Triple], ours: frozenset[Triple], streams: list[StreamProgress]
    ) -> None:
        """Let go of what every rank has, and take in what comes next.

        Args:
            engine: Of the run; always the same one.
            standby: Partitions to keep warm.
            ours: Partitions that are owned here: what is held of them stays until it is served.
            streams: The streams of the run that are read, and the steps that every rank has of each.

        Raises:
            LoadmasterError: The planner or a source cannot be reached now; what was taken in before stays.
        """
        self._let_go(engine, standby, ours, streams)
        self.warm &= standby
        for source in sorted({source for source, _, _ in standby}):
            engine.open_source(source)
        found: set[Triple] = set(standby)
        for progress in streams:
            found &= self._take_in(engine, standby, progress)
        self.warm = frozenset(found)

    def close(self, engine: LoaderEngine) -> None:
        """Let go of everything."""
        for key in list(self._kept):
            self._drop(engine, key)
        self.warm = frozenset()

    def _let_go(
        self,
        engine: LoaderEngine,
        standby: frozenset[Triple],
        ours: frozenset[Triple],
        streams: list[StreamProgress],
    ) -> None:
        first = {(progress.stream, progress.generation): progress.step for progress in streams}
        for key, kept in list(self._kept.items()):
            needed_from = first.get((key.stream, key.generation))
            if needed_from is None or key.partition not in standby | ours:
                self._drop(engine, key)
            elif key.step < needed_from:
                self._drop(engine, key)
                if key.partition in standby:
                    engine.release(kept.plan)

    def _take_in(self, engine: LoaderEngine, standby: frozenset[Triple], progress: StreamProgress) -> set[Triple]:
        """Hold the stream's next steps while the budget lasts; returns the partitions that are warm for it."""
        budgets = engine.budgets
        last = progress.step + budgets.bind_ahead
        plans = self._missing(standby, progress, last)
        num_steps, is_full = 0, False
        for step in range(progress.step, last):
            keys = [KeptKey(progress.stream, progress.generation, step, partition) for partition in sorted(standby)]
            missing = [key for key in keys if key not in self._kept]
            if missing and (step not in plans or (is_full := num_steps > 0 and self._is_full(engine))):
                break
            for key in missing:
                self._hold(engine, key, plans[step].of_partitions([key.partition]))
            num_steps += 1
        self.num_steps = num_steps
        planned = max(plans, default=progress.step + num_steps - 1) + 1 - progress.step
        is_warm = is_full or num_steps >= min(WARM_STEPS, planned)
        return set(standby) if is_warm else set()

    def _is_full(self, engine: LoaderEngine) -> bool:
        return self.size_bytes >= engine.budgets.shadow_bytes

    def _missing(self, standby: frozenset[Triple], progress: StreamProgress, last: int) -> dict[int, StepPlan]:
        """Slices of the planned steps of which something is not held yet."""
        steps = [step for step in range(progress.step, last) if any(self._lacks(progress, step, p) for p in standby)]
        if not steps:
            return {}
        path = f"/runs/{self._run}/streams/{progress.stream}/generations/{progress.generation}/plans"
        partitions = ",".join(":".join(map(str, partition)) for partition in sorted(standby))
        query = {"first": steps[0], "last": last, "partitions": partitions}
        return {plan.step: plan for plan in plans_from_bytes(self._planner.request("GET", path, query=query))}

    def _lacks(self, progress: StreamProgress, step: int, partition: Triple) -> bool:
        return KeptKey(progress.stream, progress.generation, step, partition) not in self._kept

    def _hold(self, engine: LoaderEngine, key: KeptKey, plan: StepPlan) -> None:
        holds = engine.hold_ahead(plan)
        self._kept[key] = Kept(plan, holds)
        fresh = {hold.entry for hold in holds} - self._users.keys()
        self._users.update(hold.entry for hold in holds)
        self._resize(engine, sum(_size_of(entry) for entry in fresh))

    def _drop(self, engine: LoaderEngine, key: KeptKey) -> None:
        holds = self._kept.pop(key).holds
        self._users.subtract(hold.entry for hold in holds)
        unused = {hold.entry for hold in holds if self._users[hold.entry] <= 0}
        size_bytes = sum(_size_of(entry) for entry in unused)
        for entry in unused:
            del self._users[entry]
        self._resize(engine, -size_bytes)
        engine.let_go(holds)

    def _resize(self, engine: LoaderEngine, more_bytes: int) -> None:
        self.size_bytes += more_bytes
        engine.lend(more_bytes)


def _size_of(entry: Entry) -> int:
    return entry.chunk.size_bytes if entry.chunk is not None else 0


class Shadows:
    """Keeps the standby leases of this process warm, in a thread of its own. All methods may be called by any thread.

    Args:
        planner_url: Has the plans.
        runs: The engines.
        tls: How to call the planner; None: what the environment says.
    """

    def __init__(self, planner_url: str, runs: OpenRuns, *, tls: Tls | None = None) -> None:
        self._planner = PlannerClient(planner_url, timeout_s=PLANNER_TIMEOUT_S, tls=tls)
        self._runs = runs
        self._shadows: dict[str, RunShadow] = {}
        self._desired: tuple[list[Lease], list[StreamProgress]] = ([], [])
        self._num_failures = 0
        self._changed, self._is_closed = threading.Condition(), False
        self._thread: threading.Thread | None = None

    def follow(self, leases: list[Lease], released: list[StreamProgress]) -> None:
        """Take a heartbeat's answer; returns at once."""
        with self._changed:
            self._desired = (leases, released)
            if self._thread is None and not self._is_closed and any(lease.is_standby for lease in leases):
                self._thread = threading.Thread(target=self._work, name="shadows", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def warm(self) -> list[Lease]:
        """The standby leases of which the next steps are in memory."""
        with self._changed:
            leases, _ = self._desired
            warm = {run: shadow.warm for run, shadow in self._shadows.items()}
        return [lease for lease in leases if lease.is_standby and _triple(lease) in warm.get(lease.run, ())]

    def stats(self) -> dict[str, float]:
        """What standing by costs, for people; nothing where there is none."""
        with self._changed:
            num_standby = sum(lease.is_standby for lease in self._desired[0])
            shadows = list(self._shadows.values())
        if not num_standby and not shadows:
            return {}
        return {
            "shadow_partitions": float(num_standby),
            "shadow_steps": float(min((shadow.num_steps for shadow in shadows), default=0)),
            "shadow_bytes": float(sum(shadow.size_bytes for shadow in shadows)),
            "shadow_failures": float(self._num_failures),
        }

    def close(self) -> None:
        """End the thread; it lets go of everything with the engines. Idempotent, at most about a second."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._planner.close()
        if self._thread is not None:
            self._thread.join(1.0)

    def _work(self) -> None:
        while not self._is_closed:
            with self._changed:
                desired = self._desired
            for run in sorted(_standby_runs(desired[0]) | self._shadows.keys()):
                self._keep(run, *desired)
            with self._changed:
                if self._desired is desired and not self._is_closed:
                    self._changed.wait(LOOK_S)

    def _keep(self, run: str, leases: list[Lease], released: list[StreamProgress]) -> None:
        """Bring one run up to date; a failure is counted, and tried again with the next heartbeat."""
        of_run = [lease for lease in leases if lease.run == run]
        streams = [progress for progress in released if progress.run == run]
        try:
            with self._runs.using(run) as engine:
                self._follow(engine, run, of_run, streams)
        except LoadmasterError as error:
            self._num_failures += 1
            LOG.debug("shadow of run %s: %s", run, error)
        except Exception:  # what cannot be kept warm must not end what is served here
            self._num_failures += 1
            LOG.exception("the shadow of run %s failed", run)

    def _follow(self, engine: LoaderEngine, run: str, leases: list[Lease], streams: list[StreamProgress]) -> None:
        standby = frozenset(_partitions(leases, is_standby=True))
        shadow = self._shadows.get(run) or RunShadow(run, self._planner)
        with self._changed:
            self._shadows[run] = shadow
        shadow.follow(engine, standby, frozenset(_partitions(leases, is_standby=False)), streams)
        if not standby and not shadow.size_bytes:
            shadow.close(engine)
            with self._changed:
                del self._shadows[run]


def _standby_runs(leases: Iterable[Lease]) -> set[str]:
    return {lease.run for lease in leases if lease.is_standby}


def _partitions(leases: Iterable[Lease], *, is_standby: bool) -> Iterator[Triple]:
    return (_triple(lease) for lease in leases if lease.is_standby == is_standby)


def _triple(lease: Lease) -> Triple:
    return lease.source, lease.partition, lease.partitions
