"""One rank's stream of an embedded run, with the interface of a planner's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from loadmaster.feed import FeedItem, require_fetching
from loadmaster_flight.spec import RunSpec, load_run_spec
from loadmaster_flight.wire.control import JoinReply
from loadmaster_flight.wire.errors import BadRequestError, ConflictError
from loadmaster_flight.wire.skipping import Skip
from loadmaster_flight.wire.step_plan import StepPlan

from ..freezing import freeze_run
from ..planning.place_tree import ClientPlaceTree
from ..planning.rehearsal import rehearse
from ..runs.mesh import check_batch, check_coords
from .checkpoints import CheckpointFolder
from .run import EmbeddedRun

STATE_DIR = Path(".loadmaster")


class EmbeddedFeed:
    """The steps of one rank, each planned and built when it is asked for. Used by one thread."""

    def __init__(self, run: EmbeddedRun, rank: int, info: JoinReply, checkpoints: CheckpointFolder) -> None:
        self._run, self._rank, self._info, self._checkpoints = run, rank, info, checkpoints
        self._skip = Skip.of(info.skip)

    @property
    def run(self) -> str:
        return self._run.spec.run

    @property
    def info(self) -> JoinReply:
        return self._info

    def source_names(self, num: int) -> list[str]:
        """Names of all sources."""
        return self._run.spec.source_names

    def next_step(self) -> FeedItem | None:
        require_fetching(self._info)
        plan = self._plan_served()
        if plan is None:
            return None
        return FeedItem(step=plan.step, batch=self._run.build_ranks(plan, [self._rank])[self._rank])

    def _plan_served(self) -> StepPlan | None:
        while (plan := self._run.plan_next()) is not None:
            self._checkpoints.offer(self._run.planner.state())
            if self._skip.past(plan.step) == plan.step:
                return plan
            self._run.release(plan)
        return None

    def acknowledge(self, step: int, *, wait_s: float = 0.0) -> None:
        """Nothing is kept here that an acknowledgement would free."""

    def close(self, *, in_peace: bool = True) -> None:
        """Close files and threads; nobody else waits for this rank. Idempotent."""
        self._run.close()


def connect(
    target: str,
    *,
    run: str | None = None,
    stream: str = "train",
    rank: int = 0,
    world_size: int = 1,
    step: int = 0,
    parent: int = -1,
    mesh: Mapping[str, int] | None = None,
    coords: Mapping[str, int] | None = None,
    skip: Sequence[int] = (),
    state_dir: Path = STATE_DIR,
    **_: object,
) -> EmbeddedFeed:
    """Open one rank's stream of the run spec at `target`; `step` > 0 goes on there, `skip` = [a, b) is left out.

    Raises:
        SpecError, SourceError: The spec, its strategy or a source is wrong.
        MeshError: The mesh does not fit the ranks or the batch.
        BadRequestError: `run` or `stream` is not the spec's.
        ConflictError: The stream ends before `step`.
    """
    spec = load_run_spec(target)
    _check_names(spec, run, stream)
    tree = ClientPlaceTree.from_spec(spec.mesh, world_size, mesh)
    sizes = tree.mesh
    check_batch(sizes, spec, stream)
    rehearse(spec, stream=stream, tree=tree)
    place = check_coords(sizes, rank, dict(coords or {}))
    manifests = freeze_run(spec)
    checkpoints = CheckpointFolder(state_dir, spec, manifests, stream)
    embedded = EmbeddedRun(
        spec,
        manifests,
        stream=stream,
        mesh=sizes,
        dp_ranks=[place["dp"]],
        state=checkpoints.newest(at_most=step) if step else None,
        cache_dir=state_dir / "cache",
    )
    _advance(embedded, step)
    info = JoinReply(
        state="open",
        generation=0,
        first_step=step,
        coords=place,
        mesh=sizes,
        source_names=spec.source_names,
        layout=spec.batch.layout.value,
        rows=spec.batch.rows,
        tp_mode=spec.mesh.tp_mode.value,
        skip=list(skip),
    )
    return EmbeddedFeed(embedded, rank, info, checkpoints)


def _check_names(spec: RunSpec, run: str | None, stream: str) -> None:
    if run not in (None, spec.run):
        raise BadRequestError(f"run must be the spec's {spec.run!r}, got {run!r}")
    if stream not in spec.stream_names:
        raise BadRequestError(f"stream must be one of {spec.stream_names}, got {stream!r}")


def _advance(run: EmbeddedRun, step: int) -> None:
    """Plan, without building, until `step` is next: membership is a pure function of what came before."""
    while run.planner.step < step:
        plan = run.plan_next()
        if plan is not None:
            run.release(plan)
        else:
            raise ConflictError(f"step must be one of the stream's {run.planner.step} steps, got {step}")
