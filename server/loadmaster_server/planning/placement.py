"""Placing a step's bins on the dp ranks: the same number on each, equal work.

# N = pieces, B = bins, D = dp ranks
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from loadmaster_flight.wire.errors import SpecError

from .rows import Int64Array

LINEAR_COST, QUADRATIC_COST = 65_536, 1
"""Integer cost of a piece of n tokens: linear * n + quadratic * n**2; attention equals the rest at n = 65,536."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedStep:
    """What a strategy sees of a step.

    Attributes:
        num_bins: B.
        tokens_N: Shape (N,), int64, real tokens of each piece.
        bin_N: Shape (N,), int64, the bin that holds it.
        source_N: Shape (N,), int64, the source it comes from.
        cost_B: Shape (B,), int64, cost of each bin.
    """

    step: int
    num_bins: int
    dp: int
    tokens_N: Int64Array
    bin_N: Int64Array
    source_N: Int64Array
    cost_B: Int64Array


Strategy = Callable[[PackedStep], Int64Array]
"""Returns the dp rank of each bin, int64 (B,): each of the `dp` ranks exactly num_bins // dp times. Must be pure."""


def bin_costs(tokens_N: Int64Array, bin_N: Int64Array, num_bins: int) -> Int64Array:
    """Sum of the pieces' integer costs in each bin, int64 (B,)."""
    cost_B = np.zeros(num_bins, np.int64)
    np.add.at(cost_B, bin_N, LINEAR_COST * tokens_N + QUADRATIC_COST * tokens_N**2)
    return cost_B


def bins_by_cost(packed: PackedStep) -> Int64Array:
    """Longest processing time first: the costliest bin to the rank with the least cost that has room (ties: lowest)."""
    room_D = [packed.num_bins // packed.dp] * packed.dp
    ranks = [(0, rank) for rank in range(packed.dp)]
    heapify(ranks)
    rank_B = np.empty(packed.num_bins, np.int64)
    cost_B = packed.cost_B.tolist()
    for b in np.argsort(-packed.cost_B, kind="stable").tolist():
        load, rank = heappop(ranks)
        rank_B[b] = rank
        room_D[rank] -= 1
        if room_D[rank]:
            heappush(ranks, (load + cost_B[b], rank))
    return rank_B


BUILT_IN: dict[str, Strategy] = {"bins_by_cost": bins_by_cost}


def load_strategy(name: str) -> Strategy:
    """A built-in strategy, or a callable by its dotted name `package.module:callable`.

    Raises:
        SpecError: There is none of that name.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"strategy must be one of {sorted(BUILT_IN)} or package.module:callable, got {name!r}"
        raise SpecError(f"{message}: {error}") from error
    if not callable(found):
        raise SpecError(f"strategy must be callable, got {name!r} which is a {type(found).__name__}")
    strategy: Strategy = found
    return strategy


def new_bins(packed: PackedStep, strategy: Strategy, name: str) -> Int64Array:
    """New number of each bin, int64 (B,): rank by rank, inside a rank in the old order.

    Raises:
        SpecError: The strategy does not give every rank the same number of bins.
    """
    rank_B = np.asarray(strategy(packed))
    share = packed.num_bins // packed.dp
    is_shaped = rank_B.shape == (packed.num_bins,) and rank_B.dtype.kind in "iu"
    if not is_shaped or (np.sort(rank_B) != np.repeat(np.arange(packed.dp), share)).any():
        raise SpecError(
            f"strategy {name} must give each of {packed.dp} dp ranks {share} of {packed.num_bins} bins at step "
            f"{packed.step}, got shape {rank_B.shape}, dtype {rank_B.dtype}"
        )
    new_B = np.empty(packed.num_bins, np.int64)
    new_B[np.argsort(rank_B, kind="stable")] = np.arange(packed.num_bins)
    return new_B
