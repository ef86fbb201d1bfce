"""Where the steps of an export come from: planned here from a spec, or as a planner has planned them.

Either way the microbatches are assembled by the functions that a constructor calls, from pieces that a loader's engine
makes, so their bytes are those that the ranks of the run receive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from loadmaster_flight.constructor.assemble import assemble
from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.control import CreateRunRequest, GenerationView, StreamView, from_json
from loadmaster_flight.wire.errors import BadRequestError, NotReadyError
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.skipping import Skip
from loadmaster_flight.wire.step_plan import StepPlan, plans_from_bytes

from ..embedded import EmbeddedRun
from ..embedded.checkpoints import CheckpointFolder
from ..planning.place_tree import ClientPlaceTree
from ..planning.rehearsal import rehearse
from ..runs.mesh import check_batch

PLANS_AT_ONCE = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltStep:
    """A planned step and the whole microbatches of each dp rank: before cp and pipeline stages cut them."""

    plan: StepPlan
    records: list[pa.RecordBatch]


class StepSource(Protocol):
    """Steps of one stream, in order. Used by one thread; `close` it.

    Attributes:
        spec: The run's spec.
        stream: `train`, or an evaluation pass.
        bound: Exclusive bound of the steps that nothing can change any more; None: it is a matter of the spec alone.
    """

    spec: RunSpec
    stream: str
    bound: int | None

    def steps(self, first: int, last: int) -> Iterator[BuiltStep]:
        """The steps in [first, last), or to the stream's end."""

    def close(self) -> None:
        """Close files and threads. Idempotent."""


def refuse_media(spec: RunSpec) -> None:
    """Refuse runs whose samples are more than tokens.

    Raises:
        BadRequestError: The run has media.
    """
    kinds = [kind for kind in ("vision", "audio") if getattr(spec.media, kind) is not None]
    if kinds:
        raise BadRequestError(
            f"media must be none to export a run, got {' and '.join(kinds)} in run {spec.run!r}: MDS and Megatron "
            "files of an export hold tokens alone; fetch such a run with loadmaster.connect"
        )


class SpecSteps:
    """Plans the steps of a run spec in this process, as an embedded run does: any step, those before it are planned.

    Args:
        spec: The run, with absolute paths.
        manifests: Its frozen sources.
        mesh: Axis -> size of the training mesh; None: the spec's, with dp 1 where it is auto.
        state_dir: Holds planner states, from which later exports go on, and copies of compressed files.

    Raises:
        MeshError: The mesh does not fit the spec.
        BadRequestError: There is no such stream, or the run has media.
    """

    bound: int | None = None

    def __init__(
        self,
        spec: RunSpec,
        manifests: list[SourceManifest],
        *,
        stream: str,
        mesh: Mapping[str, int] | None,
        state_dir: Path,
    ) -> None:
        if stream not in spec.stream_names:
            raise BadRequestError(f"stream must be one of {spec.stream_names}, got {stream!r}")
        refuse_media(spec)
        self.spec, self.stream = spec, stream
        self._manifests, self._state_dir = manifests, state_dir
        tree = ClientPlaceTree.from_spec(spec.mesh, _world_size(spec, mesh), mesh)
        check_batch(tree.mesh, spec, stream)
        rehearse(spec, stream=stream, tree=tree)
        self._mesh = tree.mesh
        self._run: EmbeddedRun | None = None

    def steps(self, first: int, last: int) -> Iterator[BuiltStep]:
        """As `StepSource.steps`."""
        checkpoints = CheckpointFolder(self._state_dir, self.spec, self._manifests, self.stream)
        self._run = run = EmbeddedRun(
            self.spec,
            self._manifests,
            stream=self.stream,
            mesh=self._mesh,
            state=checkpoints.newest(at_most=first) if first else None,
            cache_dir=self._state_dir / "cache",
        )
        while run.planner.step < last and (plan := run.plan_next()) is not None:
            checkpoints.offer(run.planner.state())
            if plan.step < first:
                run.release(plan)
                continue
            records = run.build(plan)
            yield BuiltStep(plan=plan, records=[records[dp] for dp in sorted(records)])

    def close(self) -> None:
        """As `StepSource.close`."""
        if self._run is not None:
            self._run.close()


def _world_size(spec: RunSpec, mesh: Mapping[str, int] | None) -> int:
    own = spec.mesh
    sizes = dict(mesh) if mesh else {"pp": own.pp, "dp": own.dp, "cp": own.cp, "tp": own.tp}
    return math.prod(size for size in sizes.values() if isinstance(size, int))


class PlannedSteps:
    """Steps as a planner has planned them in the current generation of a stream: acknowledged ones that are held, and
    those to come as far as they are planned, but for steps that it skips. Nothing is bound or acknowledged by it; the
    sources are read from here.

    Args:
        url: The planner's.
        run: Name of the run.
        state_dir: Holds copies of compressed files.
        timeout_s: Deadline of each wait for the planner.

    Raises:
        LoadmasterError: The planner cannot be reached, or does not know the run or the stream.
        BadRequestError: The run has media.
    """

    def __init__(self, url: str, run: str, *, stream: str, state_dir: Path, timeout_s: float) -> None:
        self._planner, self._timeout_s = PlannerClient(url, timeout_s=timeout_s), timeout_s
        self._path = f"/runs/{run}"
        definition = self._get(f"{self._path}/definition", CreateRunRequest)
        self.spec, self.stream = RunSpec.model_validate(definition.spec), stream
        refuse_media(self.spec)
        self._manifests = [SourceManifest.model_validate(manifest) for manifest in definition.manifests]
        self._view = self._get(f"{self._path}/streams/{stream}", StreamView)
        life = self._generation()
        self._first_step, self._skip = (life.first_step, Skip.of(life.skip)) if life else (0, Skip.of([]))
        self._cache_dir = state_dir / "cache"
        self._engine: LoaderEngine | None = None
        self.bound: int | None = self._view.bound

    def steps(self, first: int, last: int) -> Iterator[BuiltStep]:
        """As `StepSource.steps`.

        Raises:
            BadRequestError: The current generation begins after `first`.
            NotReadyError: A step is not planned yet; names the first such one.
            GoneError: A step's plan is not held any more.
        """
        last = self._last_planned(first, last)
        self._engine = engine = LoaderEngine(self.spec, self._manifests, cache_dir=self._cache_dir)
        for begin in range(first, last, PLANS_AT_ONCE):
            for plan in self._plans(begin, min(begin + PLANS_AT_ONCE, last)):
                if self._skip.past(plan.step) == plan.step:
                    yield self._build(engine, plan)

    def close(self) -> None:
        """As `StepSource.close`."""
        self._planner.close()
        if self._engine is not None:
            self._engine.close()

    def _build(self, engine: LoaderEngine, plan: StepPlan) -> BuiltStep:
        ranks = range(plan.dp)
        pieces = engine.materialize([plan], dp_ranks=set(ranks), encoder_ranks=())
        engine.release(plan)
        return BuiltStep(plan=plan, records=[assemble(plan, pieces, self.spec.batch, dp) for dp in ranks])

    def _last_planned(self, first: int, last: int) -> int:
        view, name = self._view, f"{self.spec.run}/{self.stream}"
        advice = "export the run spec (RUN.yaml) instead of the planner's run: that plans any step"
        if view.generation < 0:
            raise NotReadyError(f"{name} has not begun, no rank has joined yet: {advice}")
        if first < self._first_step:
            raise BadRequestError(
                f"steps must begin at {self._first_step} or later, where generation {view.generation} of {name} does, "
                f"got {first}: {advice}"
            )
        if view.is_planned_to_end:
            return min(last, view.planned)
        if last > view.planned:
            raise NotReadyError(
                f"step {view.planned} of {name} is not planned yet: ask for steps up to {view.planned}, or {advice}"
            )
        return last

    def _generation(self) -> GenerationView | None:
        data: list[object] = json.loads(self._request(f"{self._path}/generations"))
        lives = [from_json(GenerationView, tree) for tree in data]
        wanted = (self.stream, self._view.generation)
        return next((life for life in lives if (life.stream, life.generation) == wanted), None)

    def _plans(self, first: int, last: int) -> list[StepPlan]:
        path = f"{self._path}/streams/{self.stream}/generations/{self._view.generation}/plans"
        plans = plans_from_bytes(self._request(path, first=first, last=last))
        if [plan.step for plan in plans] != list(range(first, last)):
            raise NotReadyError(
                f"steps {first} to {last - 1} are being planned anew, since a revision was published: export again"
            )
        return plans

    def _request(self, path: str, **query: int) -> bytes:
        return retrying(lambda: self._planner.request("GET", path, query=query), deadline_s=self._timeout_s)

    def _get(self, path: str, reply: type[T]) -> T:
        return from_json(reply, json.loads(self._request(path)))
