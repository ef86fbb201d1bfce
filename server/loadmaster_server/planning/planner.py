"""Plans a stream step by step from measured rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.errors import BadRequestError, ConflictError
from loadmaster_flight.wire.schemas import METADATA
from loadmaster_flight.wire.step_plan import WHOLE, Pieces, StepPlan, Units

from . import pieces as p
from .aggregate import aggregate
from .conservation import check_units
from .demand import Demand, NeedMetadata
from .dgraph import DGraph
from .draw import MissingRowsError
from .feed import SourceFeed
from .known_verdicts import KnownVerdicts
from .membership import Membership, plan_membership, tokens_by_source
from .origins import encode_origins
from .place_tree import ClientPlaceTree
from .placement import Placer
from .rows import Int64Array, RowTable, metadata_of, tables_of
from .rules import StreamRules, check_bins, check_mesh, rules_of
from .state import PlannerState
from .supply import demands_of

__all__ = ["Demand", "NeedMetadata", "PlannerState", "StreamPlanner", "Unserved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """What a stream has drawn, or begun, and not served. Shapes (S,): pieces and real tokens per source."""

    pieces_S: Int64Array
    tokens_S: Int64Array


class StreamPlanner:
    """Plans the steps of one stream, in order. Not thread-safe.

    Args:
        lanes: Number of lanes of each source, in the order of the spec's sources.
        mesh: Axis sizes, slowest first (`{"pp": 2, "dp": 4}`), or the size of dp alone.
        state: Go on from here; by default from step 0.
        on_placed: Called with the graph of each step, every piece in its bin, before the planner moves on.

    Raises:
        MeshError: The mesh does not fit the batch: G % dp, align % (2*cp), C % (2*cp*tp); names the numbers.
        SpecError: There is no such strategy.
        NotFoundError: The spec has no such stream.
        BadRequestError: `state` belongs to other sources or lanes.
    """

    def __init__(
        self,
        spec: RunSpec,
        stream: str,
        lanes: list[int],
        mesh: Mapping[str, int] | int,
        *,
        state: PlannerState | None = None,
        on_placed: Callable[[DGraph], None] | None = None,
    ) -> None:
        self._rules = rules_of(spec, stream)
        sizes = {"dp": mesh} if isinstance(mesh, int) else mesh
        tree = ClientPlaceTree.of(sizes, speed_of_leaf=spec.mesh.speed_of_rank())
        check_mesh(self._rules, tree)
        self._revision = 0
        self._dp, self._placer = tree.size("dp"), Placer.of(spec, tree)
        self._state = PlannerState.start(lanes) if state is None else state
        _check_lanes(self._state, lanes, len(self._rules.sources))
        sources = zip(self._rules.sources, self._state.sources, strict=True)
        self._feeds = [SourceFeed(i, source, at) for i, (source, at) in enumerate(sources)]
        self._lanes, self._aggregate = lanes, dict[str, object]()
        self._verdicts: list[pa.RecordBatch] = []
        self._fed: set[int] = set()
        self._known = KnownVerdicts()
        self._num_attempts, self._on_placed = 0, on_placed
        self._placed = p.PieceTable.empty()

    @property
    def step(self) -> int:
        """Next step to plan."""
        return self._state.step

    @property
    def is_over(self) -> bool:
        """The final step has been planned."""
        return self._state.is_over

    @property
    def revision(self) -> int:
        """The revision that the next step is planned under."""
        return self._revision

    def follow(self, spec: RunSpec, revision: int, lanes: list[int] | None = None) -> None:
        """Plan the next steps under another revision. What is planned, drawn or queued stays as it is.

        Args:
            spec: The run's spec with that revision's schedule: see `revised`. It may have more sources, behind the
                others: from the next step on they are there, from their first row on and with credit 0.
            lanes: Number of lanes of each source; None: there are no more than before.

        Raises:
            MeshError: Its steps cannot be dealt to the mesh; names the numbers.
            BadRequestError: Sources are missing, or have other lanes.
        """
        rules, before = self.check(spec), self._lanes
        lanes = before if lanes is None else lanes
        if len(lanes) != len(rules.sources) or lanes[: len(before)] != before:
            rule = f"lanes must have one entry for each of {len(rules.sources)} sources and begin with {before}"
            raise BadRequestError(f"{rule}, got {lanes}")
        self._rules, self._revision, self._num_attempts = rules, revision, 0
        if len(lanes) > len(before):
            self._grow(lanes)

    def _grow(self, lanes: list[int]) -> None:
        num = len(self._lanes)
        self._state, self._lanes = self._state.grown(lanes[num:]), lanes
        sources = list(zip(self._rules.sources, self._state.sources, strict=True))[num:]
        self._feeds += [SourceFeed(num + i, source, at) for i, (source, at) in enumerate(sources)]
        self._placer = replace(self._placer, source_names=tuple(source.name for source in self._rules.sources))

    def check(self, spec: RunSpec) -> StreamRules:
        """The rules of a spec with another schedule, which the mesh must fit.

        Raises:
            MeshError: Its steps cannot be dealt to the mesh; names the numbers.
        """
        rules = rules_of(spec, self._rules.stream)
        check_mesh(rules, self._placer.tree)
        return rules

    def state(self) -> PlannerState:
        """The state after the last planned step; a planner built from it goes on equally."""
        return self._state

    def feed(self, batch: pa.RecordBatch) -> None:
        """Take measured rows (schema METADATA) of any sources and lanes, each lane's rows in order.

        Rows that are known already, or no longer needed, are dropped.

        Raises:
            BadRequestError: Another schema, an unknown source or lane, or rows missing in between.
        """
        for source, table in tables_of(batch):
            if source >= len(self._feeds):
                raise BadRequestError(f"source must be in [0, {len(self._feeds)}), got {source}")
            self._feeds[source].add(self._known.apply(source, table))
            self._fed.add(source)

    def recall(self, known: KnownVerdicts) -> None:
        """Let verdicts stand that were journaled before. Call it before rows are fed; the planner adds its own."""
        self._known = known

    def demands(self) -> list[Demand]:
        """What is worth measuring now so that the next steps do not have to wait."""
        return [] if self.is_over else self._demands([])

    def plan_next(self) -> StepPlan:
        """Plan the next step and move on. When it raises, nothing has changed.

        Raises:
            NeedMetadata: Rows must be measured and fed first.
            ConflictError: The stream is over.
            MeshError: dp does not divide this step's G.
            DataError: A source ended that must not, or an epoch yields nothing; names the source.
            RunPausedError: A source has too many bad rows.
        """
        if self.is_over:
            raise ConflictError(f"stream {self._rules.stream} is over: step {self.step - 1} was its last")
        check_bins(self._rules, self._dp, self.step)
        self._merge()
        try:
            membership = plan_membership(self._feeds, self._rules, self._state)
        except MissingRowsError as missing:
            demands = self._demands(missing.sources)
            self._num_attempts += 1
            raise NeedMetadata(demands) from None
        plan = self._place(membership)
        self._commit(membership, plan)
        return plan

    def _merge(self) -> None:
        """Bring the rows that have arrived in order."""
        for source in sorted(self._fed):
            self._feeds[source].merge()
        self._fed.clear()

    def forgive_bad_rows(self) -> None:
        """After a RunPausedError: let its bad rows go, so that `plan_next` goes on. Membership does not change."""
        for feed in self._feeds:
            feed.forgive_bad_rows()

    def unserved(self) -> Unserved:
        """What is drawn or begun but not placed: the queue, and the rests of samples that are partly served."""
        num = len(self._feeds)
        pieces_S = np.bincount(self._state.queue.source_N, minlength=num).astype(np.int64)
        tokens_S = tokens_by_source(self._state.queue, num)
        for i, source in enumerate(self._state.sources):
            pieces_S[i] += source.head_offset > 0
            tokens_S[i] += source.head_tokens - source.head_offset
        return Unserved(pieces_S=pieces_S, tokens_S=tokens_S)

    def aggregate(self) -> dict[str, object]:
        """Tokens and cost of the last planned step by source and rank: see `aggregate.aggregate`."""
        return self._aggregate

    def origins(self) -> dict[str, object]:
        """Where the pieces of the last planned step come from: see `origins.encode_origins`."""
        return encode_origins(self.step - 1, self._placed, self._state)

    def new_verdicts(self) -> pa.RecordBatch:
        """Rows passed over (verdict SKIPPED or BAD, with reason) since the last call, schema METADATA."""
        batches, self._verdicts = self._verdicts, []
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=METADATA)

    def _demands(self, missing: list[int]) -> list[Demand]:
        return demands_of(self._feeds, self._rules, self.step, missing, self._num_attempts)

    def _place(self, membership: Membership) -> StepPlan:
        placed, packed_N, shape = membership.placed, membership.bin_N, membership.shape
        graph = self._placer.place(self._placer.graph(placed, packed_N, shape, membership.weights_S))
        self._aggregate = aggregate(graph, placed.values_NP[:, p.LANE], self._lanes)
        if self._on_placed is not None:
            self._on_placed(graph)
        return StepPlan(
            step=shape.step,
            revision=self._revision,
            is_final=membership.is_final,
            num_bins=shape.num_bins,
            seq_len=shape.capacity,
            dp=self._dp,
            num_tokens=int(placed.tokens_N.sum()),
            global_valid_tokens=int(placed.values_NP[:, p.VALID].sum()),
            weights_S=np.array(membership.weights_S, np.int64),
            source_tokens_S=tokens_by_source(placed, len(self._feeds)),
            pieces=_pieces_of(placed, graph.bin_N),
            units=_units_of(placed, graph),
            is_hybrid=graph.encoder_K is not None,
        ).with_digest()

    def _commit(self, membership: Membership, plan: StepPlan) -> None:
        limits = membership.shape.limits
        for source, head in membership.heads.items():
            if head.is_moved:
                self._journal(source, self._feeds[source].commit(head, limits))
        placed_S = np.array(self._state.placed_tokens_S, np.int64) + plan.source_tokens_S
        self._num_attempts, self._placed = 0, membership.placed
        self._state = PlannerState(
            step=self._state.step + 1,
            is_over=membership.is_final,
            has_ended=membership.has_ended,
            credit_S=tuple(membership.credit_S),
            placed_tokens_S=tuple(placed_S.tolist()),
            sources=tuple(feed.state for feed in self._feeds),
            queue=membership.queue,
        )

    def _journal(self, source: int, rows: RowTable) -> None:
        if len(rows):
            self._known.add_rows(source, rows)
            self._verdicts.append(metadata_of(source, rows))


def _check_lanes(state: PlannerState, lanes: list[int], num_sources: int) -> None:
    if len(lanes) != num_sources:
        raise BadRequestError(f"lanes must have one entry for each of {num_sources} sources, got {len(lanes)}")
    theirs = [len(source.cursor_L3) for source in state.sources]
    if theirs != lanes:
        raise BadRequestError(f"a planner state must have the run's lanes {lanes}, got {theirs}")


def _units_of(placed: p.PieceTable, graph: DGraph) -> Units:
    """Who encodes which image, checked; none where images go with their documents."""
    if graph.encoder_K is None:
        return Units.empty()
    units = Units(piece_U=graph.images.node_K, rank_U=graph.encoder_K)
    check_units(placed, units, graph.tree.world_size, graph.shape.step)
    return units


def _pieces_of(placed: p.PieceTable, bin_N: Int64Array) -> Pieces:
    """The wire's form of pieces in canonical order."""
    values_NP = placed.values_NP
    is_whole_N = values_NP[:, p.TOKENS] == values_NP[:, p.SAMPLE_TOKENS]
    return Pieces(
        source=values_NP[:, p.SOURCE],
        epoch=values_NP[:, p.EPOCH],
        lane=values_NP[:, p.LANE],
        shard=values_NP[:, p.SHARD],
        block=values_NP[:, p.BLOCK],
        pos=values_NP[:, p.POS],
        first_token=values_NP[:, p.FIRST],
        num_tokens=np.where(is_whole_N, WHOLE, values_NP[:, p.TOKENS]),
        bin=bin_N,
    )
