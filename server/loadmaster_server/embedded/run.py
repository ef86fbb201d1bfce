"""A whole run in one process, without services: for notebooks, and the reference that every distributed run must equal.

It calls the same planning, loading and assembly that the services call, directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from loadmaster_flight.constructor.assemble import assemble
from loadmaster_flight.constructor.slices import build_ranks, slot_at
from loadmaster_flight.loader.crashes import CrashRecord
from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.step_plan import StepPlan

from ..planning.planner import NeedMetadata, PlannerState, StreamPlanner


class EmbeddedRun:
    """Plans and builds the steps of one stream, one after the other. Used by one thread; `close` it or use `with`.

    Args:
        spec: The run, with absolute paths (`load_run_spec`).
        manifests: Its frozen sources, in ordinal order (`freeze_run`).
        dp: Number of dp ranks, where no mesh says it.
        mesh: Axis sizes, slowest first.
        dp_ranks: Whose batches are built; by default all.
        state: Where to go on; by default from step 0.
        cache_dir: Copies of compressed files, and what decoders crashed on. None: nowhere.
    """

    def __init__(
        self,
        spec: RunSpec,
        manifests: list[SourceManifest],
        *,
        stream: str = "train",
        dp: int = 1,
        mesh: Mapping[str, int] | None = None,
        dp_ranks: Iterable[int] | None = None,
        state: PlannerState | None = None,
        workers: int = 0,
        cache_dir: Path | None = None,
    ) -> None:
        self.spec = spec
        sizes: dict[str, int] = {"dp": dp} if mesh is None else dict(mesh)
        self.planner = StreamPlanner(spec, stream, [m.lanes for m in manifests], sizes, state=state)
        self._sizes = sizes
        self._dp_ranks = set(range(sizes.get("dp", 1)) if dp_ranks is None else dp_ranks)
        notes = None if cache_dir is None or spec.media is None else cache_dir / "crashes"
        self._crashes = None if notes is None else CrashRecord(notes)
        self._manifests = manifests
        self._engine = LoaderEngine(spec, manifests, cache_dir=cache_dir, workers=workers, crashes=self._crashes)

    def follow(self, spec: RunSpec, revision: int, added: Sequence[SourceManifest] = ()) -> None:
        """Go on under another revision from the next step on: see `StreamPlanner.follow`.

        Args:
            spec: With that revision's schedule (`revised`), and behind the others the sources that come with it.
            added: Their manifests, in the same order.
        """
        manifests = [*self._manifests, *added]
        if added:
            self._engine.add_sources(spec, manifests)
        self.planner.follow(spec, revision, [manifest.lanes for manifest in manifests])
        self.spec, self._manifests = spec, manifests

    def plan_next(self) -> StepPlan | None:
        """Plan the next step, measuring what that takes; None after the stream's last step."""
        while not self.planner.is_over:
            try:
                return self.planner.plan_next()
            except NeedMetadata as need:
                for d in need.demands:
                    self.planner.feed(self._engine.measure(d.source, d.epoch, d.cursors, d.rows_per_lane))
        return None

    def release(self, plan: StepPlan) -> None:
        """Let go of what was read for a step that nobody builds."""
        self._engine.release(plan)

    def build(self, plan: StepPlan) -> dict[int, pa.RecordBatch]:
        """The whole microbatches of a planned step, by dp rank: one row each.

        Of a hybrid step they have all but what single ranks encode: see `build_ranks`.
        """
        part = plan.of_ranks(self._dp_ranks)
        pieces = self._engine.materialize([part], dp_ranks=self._dp_ranks, encoder_ranks=())
        self._engine.release(plan)
        spec, ranks = self.spec, sorted(self._dp_ranks)
        return {rank: assemble(part, pieces, spec.batch, rank, media=spec.media) for rank in ranks}

    def build_ranks(self, plan: StepPlan, ranks: Iterable[int]) -> dict[int, pa.RecordBatch]:
        """What each of some ranks of the mesh is served of a planned step, cut for its place."""
        shape = tuple(self._sizes.values())
        coords = {rank: [int(i) for i in np.unravel_index(rank, shape)] for rank in ranks}
        slot_of = {
            r: slot_at(self._sizes, {"dp": 0} | dict(zip(self._sizes, at, strict=True))) for r, at in coords.items()
        }
        dp_ranks = {dp for dp, _ in slot_of.values()}
        part = plan.of_ranks(dp_ranks, slot_of)
        pieces = self._engine.materialize([part], dp_ranks=dp_ranks, encoder_ranks=list(slot_of))
        self._engine.release(plan)
        return build_ranks(part, pieces, self.spec, self._sizes, slot_of)

    def __iter__(self) -> EmbeddedRun:
        return self

    def __next__(self) -> tuple[StepPlan, dict[int, pa.RecordBatch]]:
        plan = self.plan_next()
        if plan is None:
            raise StopIteration
        return plan, self.build(plan)

    def close(self) -> None:
        """Close files and threads. Idempotent."""
        self._engine.close()
        if self._crashes is not None:
            self._crashes.close()

    def __enter__(self) -> EmbeddedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
