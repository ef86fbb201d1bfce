"""An in-memory source of metadata: answers demands from synthetic lanes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.schemas import METADATA, Verdict
from loadmaster_flight.wire.step_plan import WHOLE, StepPlan
from loadmaster_server.planning import Demand, NeedMetadata, PlannerState, StreamPlanner

MAX_REFUSALS = 200


@dataclass
class FakeSource:
    """`lengths[i]` tokens for sample i (shard = i // rows_per_shard); 0: skipped, negative: bad.

    `patches[i]` has the units of its media, where it has any.
    """

    lengths: Sequence[int]
    lanes: int = 2
    rows_per_shard: int = 16
    spans: dict[int, list[int]] = field(default_factory=dict)
    patches: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._epochs: dict[int, list[list[dict[str, object]]]] = {}
        self._batches: dict[tuple[int, int, int], pa.RecordBatch] = {}

    def lane_rows(self, epoch: int, lane: int) -> list[dict[str, object]]:
        """All rows of a lane in one epoch, in order, without its end."""
        if epoch not in self._epochs:
            self._epochs[epoch] = self._deal(epoch)
        return self._epochs[epoch][lane]

    def _lane_batch(self, source: int, epoch: int, lane: int) -> pa.RecordBatch:
        key = (source, epoch, lane)
        if key not in self._batches:
            rows = [*self.lane_rows(epoch, lane), _lane_end(lane)]
            self._batches[key] = to_batch([{"source": source, "epoch": epoch} | row for row in rows])
        return self._batches[key]

    def _deal(self, epoch: int) -> list[list[dict[str, object]]]:
        num_shards = -(-len(self.lengths) // self.rows_per_shard)
        order = np.random.default_rng(epoch).permutation(num_shards).tolist()
        dealt: list[list[dict[str, object]]] = [[] for _ in range(self.lanes)]
        for place, shard in enumerate(order):
            lane, unit = place % self.lanes, place // self.lanes
            first = shard * self.rows_per_shard
            for pos, i in enumerate(range(first, min(first + self.rows_per_shard, len(self.lengths)))):
                dealt[lane].append(self._row(i, lane, unit, shard, pos))
        return dealt

    def _row(self, i: int, lane: int, unit: int, shard: int, pos: int) -> dict[str, object]:
        n = int(self.lengths[i])
        verdict = Verdict.OK if n > 0 else Verdict.SKIPPED if n == 0 else Verdict.BAD
        reason = {Verdict.SKIPPED: "empty text", Verdict.BAD: "invalid UTF-8"}.get(verdict)
        row = {"lane": lane, "unit_index": unit, "block_index": 0, "shard": shard, "block": 0, "pos": pos, "row": pos}
        row |= {"verdict": int(verdict), "reason": reason, "num_tokens": max(n, 0), "size_bytes": 0}
        return row | {"loss_spans": self.spans.get(i), "image_patches": self.patches.get(i)}

    def answer(self, demand: Demand, lane_at: int) -> pa.RecordBatch:
        """Rows for one of the demand's cursors, with the lane's end if they reach it."""
        lane, *position = demand.cursors[lane_at]
        rows = self.lane_rows(demand.epoch, lane)
        first = bisect_left(rows, tuple(position), key=itemgetter("unit_index", "block_index", "pos"))
        stop = first + demand.rows_per_lane
        is_at_end = stop >= len(rows)
        return self._lane_batch(demand.source, demand.epoch, lane)[first : len(rows) + 1 if is_at_end else stop]


def _lane_end(lane: int) -> dict[str, object]:
    places = dict.fromkeys(("unit_index", "block_index", "shard", "block", "pos", "row"), -1)
    rest = {"lane": lane, "verdict": int(Verdict.LANE_END), "reason": None, "num_tokens": 0, "size_bytes": 0}
    return places | rest | {"loss_spans": None}


def to_batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in METADATA]
    return pa.RecordBatch.from_arrays(columns, schema=METADATA)


def feed_plainly(planner: StreamPlanner, sources: Sequence[FakeSource], demands: list[Demand]) -> None:
    """One batch a demand, lane by lane."""
    for demand in demands:
        lanes = [sources[demand.source].answer(demand, at) for at in range(len(demand.cursors))]
        planner.feed(pa.concat_batches(lanes))


Feeder = Callable[[StreamPlanner, Sequence[FakeSource], list[Demand]], None]


@dataclass
class Rig:
    """A planner with the fake sources that feed it."""

    spec: RunSpec
    sources: list[FakeSource]
    planner: StreamPlanner
    feeder: Feeder = feed_plainly
    num_refusals: int = 0

    def next(self) -> StepPlan:
        """Plan a step, feeding what it asks for."""
        for _ in range(MAX_REFUSALS):
            before = self.planner.state()
            try:
                return self.planner.plan_next()
            except NeedMetadata as need:
                assert self.planner.state() is before
                self.num_refusals += 1
                self.feeder(self.planner, self.sources, need.demands)
        raise AssertionError(f"step {self.planner.step} still lacks rows after {MAX_REFUSALS} round trips")

    def steps(self, limit: int = 10_000) -> list[StepPlan]:
        """Plan until the stream is over, or `limit` steps."""
        plans = []
        while not self.planner.is_over and len(plans) < limit:
            plans.append(self.next())
        return plans

    def drawn_S(self) -> np.ndarray:
        """Real tokens drawn so far per source: placed and queued ones."""
        state = self.planner.state()
        drawn = np.array(state.placed_tokens_S, np.int64)
        np.add.at(drawn, state.queue.source_N, state.queue.tokens_N)
        return drawn

    def tokens_of(self, plan: StepPlan) -> np.ndarray:
        """Real tokens of each piece of a plan."""
        p, out = plan.pieces, []
        for source, shard, pos, n in zip(p.source, p.shard, p.pos, p.num_tokens, strict=True):
            fake = self.sources[source]
            out.append(fake.lengths[shard * fake.rows_per_shard + pos] if n == WHOLE else n)
        return np.array(out, np.int64)


Piece = tuple[int, ...]


def piece_set(plan: StepPlan) -> list[Piece]:
    """The step's multiset of pieces, wherever they are placed."""
    p = plan.pieces
    columns = (p.source, p.epoch, p.lane, p.shard, p.block, p.pos, p.first_token, p.num_tokens)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def make_spec(
    num_sources: int = 1,
    *,
    weights: Sequence[object] | None = None,
    unit: str = "tokens",
    source: dict[str, object] | Sequence[dict[str, object]] = (),
    until: dict[str, object] | None = None,
    evaluation: dict[str, object] | None = None,
    strategy: str = "llm_balance",
    **batch: object,
) -> RunSpec:
    """A run of sources s0, s1, ...; `source` holds extra fields of all, or of each; `batch` those of the batch.

    `strategy` is set unchecked: planning takes names that a spec may not hold.
    """
    extras = [source] * num_sources if isinstance(source, dict) else [*source, *[{}] * num_sources]
    names = [f"s{i}" for i in range(num_sources)]
    tree = {
        "run": "test",
        "sources": {
            name: {"uri": f"{name}.jsonl", "transform": {"text": "text"}} | extra
            for name, extra in zip(names, extras, strict=False)
        },
        "mixture": {"unit": unit, "weights": dict(zip(names, weights or [1.0] * num_sources, strict=True))},
        "batch": {"seq_len": 1024, "microbatches": 8} | batch,
        "until": until or {},
        "evaluation": evaluation or {},
    }
    return RunSpec.model_validate(tree).model_copy(update={"strategy": strategy})


@pytest.fixture
def spec_of() -> Callable[..., RunSpec]:
    return make_spec


@pytest.fixture
def pieces_of() -> Callable[[StepPlan], list[Piece]]:
    return piece_set


@pytest.fixture
def fake_source() -> type[FakeSource]:
    return FakeSource


@pytest.fixture
def batch_of() -> Callable[[list[dict[str, object]]], pa.RecordBatch]:
    return to_batch


@pytest.fixture
def make_rig() -> Callable[..., Rig]:
    """Factory: spec and fake sources (or lists of lengths) to a rig."""

    def make(
        spec: RunSpec,
        sources: Sequence[FakeSource | Sequence[int]],
        *,
        dp: int = 1,
        stream: str = "train",
        state: PlannerState | None = None,
        feeder: Feeder = feed_plainly,
    ) -> Rig:
        fakes = [s if isinstance(s, FakeSource) else FakeSource(s) for s in sources]
        planner = StreamPlanner(spec, stream, [fake.lanes for fake in fakes], dp, state=state)
        return Rig(spec=spec, sources=fakes, planner=planner, feeder=feeder)

    return make
