"""A context-parallel size for every microbatch: short documents on one rank, giants spread over many.

# N = documents, D = ranks (dp x cp together), M = microbatches of a rank
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from ..cost import Float64Array, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Where documents go when each may have a context-parallel size of its own.

    Attributes:
        cp_N: Shape (N,), int64, ranks that share each document: 1, 2, 4, ...
        slot_N: Shape (N,), int64, rank * M + m of the first of these; the others are the next ranks, at the same m.
            -1: there was no room.
        cost_DM: Shape (D, M), float64, cost of each rank's microbatch.
        used_DM: Shape (D, M), int64, size in it.
        spread_DM: Shape (D, M), int64, ranks that begin the microbatch together, for `finish_times`.
    """

    cp_N: Int64Array
    slot_N: Int64Array
    cost_DM: Float64Array
    used_DM: Int64Array
    spread_DM: Int64Array


def context_sizes(
    size_N: Int64Array, cost_N: Float64Array, *, num_slots: int, capacity: int, largest: int, smallest: int = 1
) -> Int64Array:
    """The least power of two at which a document's share fits a microbatch and costs no more than a mean one.

    Args:
        largest: Ranks that may share a document, a power of two; beyond it a giant stays above the mean.
        smallest: Ranks that share every document.
    """
    mean = float(cost_N.sum()) / num_slots
    need_N = np.maximum(size_N / capacity, cost_N / mean if mean > 0 else 0.0)
    power_N = np.ceil(np.log2(np.maximum(need_N, 1.0)))
    return np.clip(np.exp2(power_N), smallest, largest).astype(np.int64)


def spread_context(
    size_N: Int64Array,
    cost_N: Float64Array,
    *,
    num_ranks: int,
    per_rank: int,
    capacity: int,
    largest: int,
    smallest: int = 1,
) -> Spread:
    """Place documents, the widest first, then the costliest; each where the load of its ranks is least.

    A document that k ranks share takes size / k and cost / k of the same microbatch on each (the zigzag of context
    parallelism makes the causal work equal). smallest = largest = k is a fixed context-parallel size.

    Raises:
        ValueError: largest is not a power of two that divides num_ranks, or smallest is not one up to it.
    """
    for name, value in (("largest", largest), ("smallest", smallest)):
        if value < 1 or value & (value - 1) or num_ranks % value or smallest > largest:
            raise ValueError(f"{name} must be a power of two that divides {num_ranks} ranks, got {value}")
    num_slots = num_ranks * per_rank
    cp_N = context_sizes(
        size_N, cost_N, num_slots=num_slots, capacity=capacity, largest=largest, smallest=smallest
    )  # fmt: skip
    placing = _Placing(num_ranks, per_rank, capacity)
    slot_N = np.full(len(size_N), -1, np.int64)
    order_N = np.lexsort((np.arange(len(size_N)), -cost_N, -cp_N))
    for width in np.unique(cp_N)[::-1].tolist():
        members = order_N[cp_N[order_N] == width]
        slot_N[members] = placing.place(size_N[members], cost_N[members], width)
    return Spread(
        cp_N=cp_N, slot_N=slot_N, cost_DM=placing.cost_DM, used_DM=placing.used_DM, spread_DM=placing.spread_DM
    )


class _Placing:
    """Ranks while they are filled."""

    def __init__(self, num_ranks: int, per_rank: int, capacity: int) -> None:
        self._capacity, self._per_rank = capacity, per_rank
        self.cost_DM = np.zeros((num_ranks, per_rank))
        self.used_DM = np.zeros((num_ranks, per_rank), np.int64)
        self.spread_DM = np.ones((num_ranks, per_rank), np.int64)

    def place(self, size_N: Int64Array, cost_N: Float64Array, width: int) -> Int64Array:
        """Place documents of one width in the order given; the slot of each, -1 without room."""
        num_groups = len(self.cost_DM) // width
        load_G = self.cost_DM.reshape(num_groups, width, -1).sum(axis=2).max(axis=1)
        heap = [(float(load), group) for group, load in enumerate(load_G)]
        heapq.heapify(heap)
        return np.array([self._put(heap, s, c, width) for s, c in zip(size_N, cost_N, strict=True)], np.int64)

    def _put(self, heap: list[tuple[float, int]], size: int, cost: float, width: int) -> int:
        share_size, share_cost, passed = -(-int(size) // width), float(cost) / width, []
        slot = -1
        while heap:
            load, group = heapq.heappop(heap)
            m = self._roomiest(group, width, share_size)
            if m >= 0:
                self._add(group, width, m, share_size, share_cost)
                heapq.heappush(heap, (load + share_cost, group))
                slot = group * width * self._per_rank + m
                break
            passed.append((load, group))
        for entry in passed:
            heapq.heappush(heap, entry)
        return slot

    def _roomiest(self, group: int, width: int, size: int) -> int:
        """The cheapest microbatch of the group with room on all its ranks and no other group in it; -1: none."""
        rows = slice(group * width, (group + 1) * width)
        other_M = self.spread_DM[rows].max(axis=0)
        has_room_M = self.used_DM[rows].max(axis=0) + size <= self._capacity
        is_free_M = has_room_M & ((width == 1) | (other_M == 1) | (other_M == width))
        if not is_free_M.any():
            return -1
        cost_M = np.where(is_free_M, self.cost_DM[rows].max(axis=0), np.inf)
        return int(np.argmin(cost_M))

    def _add(self, group: int, width: int, m: int, size: int, cost: float) -> None:
        rows = slice(group * width, (group + 1) * width)
        self.cost_DM[rows, m] += cost
        self.used_DM[rows, m] += size
        if width > 1:
            self.spread_DM[rows, m] = width


def microbatch_floor(cost_N: Float64Array, num_slots: int, cp: int) -> float:
    """The costliest document's share over the mean microbatch: no placement has a smaller max/mean. At least 1."""
    mean = float(cost_N.sum()) / num_slots
    return max(1.0, float(cost_N.max(initial=0.0)) / cp / mean) if mean > 0 else 1.0
