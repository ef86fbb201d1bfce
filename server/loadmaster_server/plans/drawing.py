"""Nodes and edges of a planned step, from its plan and the sums kept beside it.

# N = pieces, D = dp ranks, S = sources
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.step_plan import Pieces, plans_from_bytes

from ..planning.aggregate import COST_UNIT, rank_groups
from ..store import Definition, PlanRecord
from .restoring import Span

Int64Array = npt.NDArray[np.int64]
MAX_EDGES = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A place of the graph. `cost` is its share of the step's; tokens and cost are None where a large step keeps none.

    Attributes:
        node: `source:0`, `partition:0:1` (k of source 0), `ranks:0-3`.
        kind: source, partition or ranks.
        served_by: Address of the loader or constructor that has it now; empty while none does.
    """

    node: str
    kind: str
    name: str
    pieces: int
    tokens: int | None
    cost: float | None
    served_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """Pieces on their way from one node to another."""

    start: str
    end: str
    pieces: int
    tokens: int | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Sums over pieces at some places. Shape (places,); tokens and cost (millionths of the step's) may be unknown."""

    pieces: Int64Array
    tokens: Int64Array | None
    cost: Int64Array | None

    def at(self, i: int) -> dict[str, Any]:
        """Fields of a node or an edge."""
        return {
            "pieces": int(self.pieces[i]),
            "tokens": None if self.tokens is None else int(self.tokens[i]),
            "cost": None if self.cost is None else int(self.cost[i]) / COST_UNIT,
        }


class Drawing:
    """One step's pieces, summed up to partitions and groups of ranks.

    Args:
        definition: The run.
        span: Whose log has the step.
        record: The step.
        owners: Per source, partition k -> (P, address of its loader).
        constructors: dp rank -> address.
    """

    def __init__(
        self,
        definition: Definition,
        span: Span,
        record: PlanRecord,
        owners: Sequence[dict[int, tuple[int, str]]],
        constructors: dict[int, str],
    ) -> None:
        plan = plans_from_bytes(record.body)[0]
        self.kept: dict[str, Any] = record.summary.get("graph", {})
        self._names, self._lanes = definition.spec.source_names, definition.lanes
        self._summary, self._owners, self._constructors = record.summary, owners, constructors
        self._num_ranks = span.mesh.get("dp", 1)
        self._slots = [next(iter(owner.values()))[0] if owner else 1 for owner in owners]
        self._first_S = np.cumsum(self._slots) - self._slots
        stored = rank_groups(self._num_ranks)
        self._num_groups = max(1, min(stored, MAX_EDGES // sum(self._slots)))
        self._group_D = np.arange(self._num_ranks) * stored // self._num_ranks * self._num_groups // stored
        self._pieces = plan.pieces
        self._partition_N, self._rank_N = self._partitions(plan.pieces), plan.pieces.bin // plan.bins_per_rank

    def _partitions(self, pieces: Pieces) -> Int64Array:
        slots_S = np.array(self._slots, np.int64)
        return np.asarray(self._first_S[pieces.source] + pieces.lane % slots_S[pieces.source], np.int64)

    def nodes(self) -> Iterator[GraphNode]:
        """Sources, their partitions, groups of ranks."""
        sources = self._source_sums()
        partitions = self._sums(self._partition_N, self._cell_partition, sum(self._slots))
        for s, name in enumerate(self._names):
            yield GraphNode(node=f"source:{s}", kind="source", name=name, **sources.at(s))
            for k in range(self._slots[s]):
                address = self._owners[s].get(k, (0, ""))[1]
                label = f"{name} {k + 1}/{self._slots[s]}"
                at = partitions.at(int(self._first_S[s]) + k)
                yield GraphNode(node=f"partition:{s}:{k}", kind="partition", name=label, served_by=address, **at)
        ranks = self._rank_sums()
        for group in range(self._num_groups):
            yield GraphNode(
                node=self._ranks_node(group),
                kind="ranks",
                name=self._ranks_node(group).replace(":", " "),
                served_by=self._served_by(group),
                **ranks.at(group),
            )

    def edges(self) -> Iterator[GraphEdge]:
        """From each source to its partitions, and from those to the ranks."""
        partitions = self._sums(self._partition_N, self._cell_partition, sum(self._slots))
        for s, slots in enumerate(self._slots):
            for k in range(slots):
                at = partitions.at(int(self._first_S[s]) + k)
                if at["pieces"]:
                    yield GraphEdge(start=f"source:{s}", end=f"partition:{s}:{k}", **at)
        num = self._num_groups
        pair_N = self._partition_N * num + self._group_D[self._rank_N]
        sums = self._sums(pair_N, self._cell_pair, sum(self._slots) * num)
        for pair in np.flatnonzero(sums.pieces).tolist():
            partition, group = divmod(pair, num)
            s = int(np.searchsorted(self._first_S, partition, side="right")) - 1
            start = f"partition:{s}:{partition - int(self._first_S[s])}"
            yield GraphEdge(start=start, end=self._ranks_node(group), **sums.at(pair))

    def _sums(self, place_N: Int64Array, place_of_cells: Callable[[], Int64Array], num: int) -> Sums:
        """Pieces from the plan; tokens and cost from the cells (lane, rank) that a small step keeps."""
        pieces = np.bincount(place_N, minlength=num).astype(np.int64)
        if "cell_tokens" not in self.kept:
            return Sums(pieces=pieces, tokens=None, cost=None)
        places = place_of_cells()
        tokens, cost = (
            np.bincount(places, weights=self.kept[name], minlength=num).astype(np.int64)
            for name in ("cell_tokens", "cell_cost")
        )
        return Sums(pieces=pieces, tokens=tokens, cost=cost)

    def _cell_partition(self) -> Int64Array:
        """Partition of each cell (lane, rank), int64 (lanes * D,)."""
        of_lane = [
            first + lane % slots
            for first, lanes, slots in zip(self._first_S.tolist(), self._lanes, self._slots, strict=True)
            for lane in range(lanes)
        ]
        return np.repeat(np.array(of_lane, np.int64), self._num_ranks)

    def _cell_pair(self) -> Int64Array:
        """Partition and group of ranks of each cell, as one number."""
        return self._cell_partition() * self._num_groups + np.tile(self._group_D, sum(self._lanes))

    def _source_sums(self) -> Sums:
        pieces = np.bincount(self._pieces.source, minlength=len(self._names)).astype(np.int64)
        cost = self.kept.get("source_cost")
        return Sums(
            pieces=pieces,
            tokens=np.array(self._summary["source_tokens"], np.int64),
            cost=None if cost is None else np.array(cost, np.int64),
        )

    def _rank_sums(self) -> Sums:
        pieces = np.bincount(self._group_D[self._rank_N], minlength=self._num_groups).astype(np.int64)
        if "rank_tokens" not in self.kept:
            return Sums(pieces=pieces, tokens=None, cost=None)
        stored = rank_groups(self._num_ranks)
        merged = np.arange(stored) * self._num_groups // stored
        tokens, cost = (
            np.bincount(merged, weights=self.kept[name], minlength=self._num_groups).astype(np.int64)
            for name in ("rank_tokens", "rank_cost")
        )
        return Sums(pieces=pieces, tokens=tokens, cost=cost)

    def _ranks_node(self, group: int) -> str:
        ranks = np.flatnonzero(self._group_D == group)
        return f"ranks:{ranks[0]}" if len(ranks) == 1 else f"ranks:{ranks[0]}-{ranks[-1]}"

    def _served_by(self, group: int) -> str:
        ranks = np.flatnonzero(self._group_D == group).tolist()
        return ", ".join(dict.fromkeys(self._constructors[rank] for rank in ranks if rank in self._constructors))
