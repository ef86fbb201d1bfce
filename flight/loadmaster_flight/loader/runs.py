"""The runs that a loader has open, one engine each: opened when first asked for, closed when no lease needs them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ..spec.manifest import SourceManifest
from ..spec.run import RunSpec
from ..wire.control import CreateRunRequest, SourceReport
from ..wire.http import PlannerClient, retrying
from ..wire.tls import Tls
from .engine import LoaderEngine

LOG = logging.getLogger(__name__)
FETCH_DEADLINE_S = 10.0
IDLE_S = 30.0
"""A run without lease is kept this long after its last call: leases come a heartbeat later than tickets."""

OpenEngine = Callable[[RunSpec, list[SourceManifest]], LoaderEngine]


class OpenRun:
    """An engine and who uses it."""

    def __init__(self, engine: LoaderEngine) -> None:
        self.engine = engine
        self.num_users = 0
        self.used_s = time.monotonic()


class OpenRuns:
    """Engines by run, for any number of threads.

    Args:
        planner_url: Has the definitions of the runs.
        open_engine: Makes an engine of a definition.
        tls: How to call the planner; None: what the environment says.
    """

    def __init__(self, planner_url: str, open_engine: OpenEngine, *, tls: Tls | None = None) -> None:
        self._planner_url, self._open_engine, self._tls = planner_url, open_engine, tls
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._runs: dict[str, OpenRun] = {}

    @contextmanager
    def using(self, run: str) -> Iterator[LoaderEngine]:
        """The engine of a run; it is not closed meanwhile.

        Raises:
            LoadmasterError: The planner does not know the run, or cannot be reached.
        """
        opened = self._taken(run)
        try:
            yield opened.engine
        finally:
            with self._lock:
                opened.num_users -= 1
                opened.used_s = time.monotonic()

    def keep(self, leased: set[str], *, idle_s: float = IDLE_S) -> None:
        """Close the runs that no lease names, nobody uses, and nobody has used for `idle_s`."""
        before_s = time.monotonic() - idle_s
        with self._lock:
            idle = [
                run
                for run, opened in self._runs.items()
                if run not in leased and not opened.num_users and opened.used_s <= before_s
            ]
            closing = {run: self._runs.pop(run) for run in idle}
        for run, opened in closing.items():
            LOG.info("run %s is not ours any more: closing its sources", run)
            opened.engine.close()

    def engine_if_open(self, run: str) -> LoaderEngine | None:
        """The engine, where the run is open already."""
        with self._lock:
            opened = self._runs.get(run)
        return None if opened is None else opened.engine

    def engines(self) -> dict[str, LoaderEngine]:
        """The runs that are open now."""
        with self._lock:
            return {run: opened.engine for run, opened in self._runs.items()}

    def stats(self) -> dict[str, float]:
        """Counters of all open runs, added up."""
        engines = list(self.engines().values())
        total = {"runs_open": float(len(engines))}
        for engine in engines:
            for name, value in engine.stats().items():
                total[name] = total.get(name, 0.0) + value
        return total

    def source_reports(self) -> list[SourceReport]:
        """How the sources of all open runs are read, where there is news. One thread calls it."""
        return [report for engine in self.engines().values() if (report := engine.source_report()) is not None]

    def close(self) -> None:
        """Close all engines. Idempotent."""
        with self._lock:
            runs, self._runs = self._runs, {}
        for opened in runs.values():
            opened.engine.close()

    def _taken(self, run: str) -> OpenRun:
        with self._lock:
            if (opened := self._runs.get(run)) is not None:
                opened.num_users += 1
                return opened
        with self._opening:  # one at a time: opening is rare, and two engines of a run would hold everything twice
            with self._lock:
                is_open = run in self._runs
            if not is_open:
                fresh = OpenRun(self._open(run))
                with self._lock:
                    self._runs[run] = fresh
        return self._taken(run)

    def _open(self, run: str) -> LoaderEngine:
        engine = self._open_engine(*self._definition(run))
        engine.look_again = partial(self._definition, run)
        return engine

    def _definition(self, run: str) -> tuple[RunSpec, list[SourceManifest]]:
        planner = PlannerClient(self._planner_url, timeout_s=FETCH_DEADLINE_S, tls=self._tls)
        try:
            definition = retrying(
                lambda: planner.get(f"/runs/{run}/definition", CreateRunRequest), deadline_s=FETCH_DEADLINE_S
            )
        finally:
            planner.close()
        manifests = [SourceManifest.model_validate(manifest) for manifest in definition.manifests]
        return RunSpec.model_validate(definition.spec), manifests
