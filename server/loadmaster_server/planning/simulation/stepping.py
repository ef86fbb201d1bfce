"""The planner's own steps on a mesh that is not there, each with its simulated time.

# N = pieces, D = dp ranks, M = microbatches of a rank, S = sources
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from loadmaster_flight.spec import Layout, RunSpec
from loadmaster_flight.wire.step_plan import StepPlan

from ..cost import CostModel, Float64Array, Int64Array, transformer_cost
from ..demand import Demand, NeedMetadata
from ..dgraph import DGraph
from ..pieces import DRAWN_AT
from ..planner import StreamPlanner
from .encoding import Encoding, encoding_of
from .figures import Evenness, Mesh, Timing, TokenBudget, evenness_of, limit_of, naive_timing, timing_of
from .loaders import Against, as_read, cost_grid
from .shuffling import ShuffleQuality

Measure = Callable[[Demand], pa.RecordBatch]
DEFAULT_BACKBONE = transformer_cost(5120, 36, 13_824, 128_256)
"""FLOPs of a 12B dense decoder, whose shape the planner takes where the spec names no model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """One step. Times are in FLOPs of one device.

    Attributes:
        shares_S: Shape (S,), what the mixture gives each source in this step; sums to 1.
        fill: Real tokens over the capacity of all microbatches; occupancy counts the padding to `align` as well.
        limit: Efficiency that the pipeline's bubble leaves.
        queued: Pieces that are drawn and wait, with their tokens; `oldest_age` in steps.
        against: Steps of other loaders on the same samples.
        encoding: What the encoder does; None: the step has no images.
    """

    step: int
    num_pieces: int
    num_tokens: int
    shares_S: tuple[float, ...]
    fill: float
    occupancy: float
    timing: Timing
    limit: float
    evenness: Evenness
    method: str
    queued: int
    queued_tokens: int
    oldest_age: int
    against: dict[Against, list[Timing]]
    encoding: Encoding | None


def backbone_of(spec: RunSpec) -> CostModel:
    """FLOPs of a document in the spec's backbone, or in one of 12B."""
    if spec.model.backbone is None:
        return DEFAULT_BACKBONE
    return transformer_cost(**spec.model.backbone.model_dump())


class Stepper:
    """Plans steps and times them. Used by one thread.

    Args:
        lanes: Of each source, in the order of the spec.
        measure: Answers the planner's demands.
        against: Loaders that get the same samples.
        num_blocks: Blocks of each source where that is known.
    """

    def __init__(
        self,
        spec: RunSpec,
        mesh: dict[str, int],
        lanes: list[int],
        measure: Measure,
        *,
        stream: str = "train",
        against: Collection[Against] = (),
        num_blocks: Sequence[int | None] | None = None,
    ) -> None:
        self._placed: list[DGraph] = []
        self.planner = StreamPlanner(spec, stream, lanes, mesh, on_placed=self._placed.append)
        self.mesh = Mesh(**mesh)
        known = num_blocks or [None] * len(lanes)
        self.shuffle_S = [ShuffleQuality(lanes=n, num_blocks=blocks) for n, blocks in zip(lanes, known, strict=True)]
        self._seed, self._measure, self._cost = spec.seed, measure, backbone_of(spec)
        self._against, self._budget = against, TokenBudget(self.mesh)

    def steps(self, num: int) -> Iterator[SimulatedStep]:
        """The next `num` steps, fewer where the stream ends."""
        for _ in range(num):
            plan = self._plan()
            if plan is None:
                return
            for source, quality in enumerate(self.shuffle_S):
                is_its_N = (plan.pieces.source == source) & (plan.pieces.first_token == 0)
                quality.add(plan.pieces.shard[is_its_N], plan.pieces.block[is_its_N])
            yield self._judge(plan, self._placed.pop())

    def _plan(self) -> StepPlan | None:
        while not self.planner.is_over:
            try:
                return self.planner.plan_next()
            except NeedMetadata as need:
                for demand in need.demands:
                    self.planner.feed(self._measure(demand))
        return None

    def _judge(self, plan: StepPlan, graph: DGraph) -> SimulatedStep:
        shape, nodes, per_rank = graph.shape, graph.nodes, graph.bins_per_rank
        cost_N, size_N = self._cost(nodes.tokens_N), nodes.size_N
        cost_DM = cost_grid(cost_N, plan.pieces.bin, self.mesh.dp, per_rank)
        is_padded = shape.layout is Layout.PAD
        capacity = shape.rows if is_padded else shape.capacity // shape.align
        queue = self.planner.state().queue
        return SimulatedStep(
            step=plan.step,
            num_pieces=len(nodes),
            num_tokens=plan.num_tokens,
            shares_S=tuple((plan.weights_S / plan.weights_S.sum()).tolist()),
            fill=plan.num_tokens / (plan.num_bins * shape.capacity),
            occupancy=float(size_N.sum()) / (plan.num_bins * capacity),
            timing=timing_of(cost_DM, self.mesh),
            limit=limit_of(self.mesh, per_rank),
            evenness=evenness_of(size_N, cost_N, cost_DM, capacity),
            method=graph.method,
            queued=len(queue),
            queued_tokens=int(queue.tokens_N.sum()),
            oldest_age=plan.step + 1 - int(queue.values_NP[:, DRAWN_AT].min()) if len(queue) else 0,
            against=self._others(plan.step, size_N, cost_N, plan.num_bins, capacity),
            encoding=encoding_of(graph),
        )

    def _others(
        self, step: int, size_N: Int64Array, cost_N: Float64Array, num_bins: int, capacity: int
    ) -> dict[Against, list[Timing]]:
        order_N = as_read(len(size_N), self._seed + step)
        found: dict[Against, list[Timing]] = {}
        if Against.NAIVE in self._against:
            found[Against.NAIVE] = [naive_timing(cost_N[order_N], self.mesh, num_bins)]
        if Against.TOKEN_BUDGET in self._against:
            found[Against.TOKEN_BUDGET] = self._budget.read(size_N[order_N], cost_N[order_N], num_bins, capacity)
        return found
