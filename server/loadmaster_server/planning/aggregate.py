"""A placed step's graph in few numbers, to be kept beside its plan, which knows places but no lengths.

# N = pieces, K = images, S = sources, L = lanes of all sources, D = dp ranks, R = groups of neighbouring ranks
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .cost import integer_costs
from .dgraph import DGraph
from .origins import packed
from .rows import Int64Array

MAX_CELLS = 512
"""Lanes times ranks up to which every pair has its tokens and cost; a larger step has them by source and by rank."""
MAX_RANK_GROUPS = 64
COST_UNIT = 1_000_000
"""Costs are in millionths of the step's."""
RANK_UNIT = 10_000
"""Costs of single ranks are in ten-thousandths of their mean."""


def rank_groups(num_ranks: int) -> int:
    """R: ranks, or groups of neighbouring ones where there are many."""
    return min(num_ranks, MAX_RANK_GROUPS)


def aggregate(graph: DGraph, lane_N: Int64Array, lanes: Sequence[int]) -> dict[str, object]:
    """Tokens and cost of a placed step as a small JSON-able tree.

    Args:
        graph: Placed, with costs.
        lane_N: Shape (N,), int64, the lane that each piece comes from.
        lanes: Lanes of each source.

    Returns:
        method; aligned_tokens, what documents take up when each is padded to `align`; source_cost (S,); rank_tokens and
        rank_cost (R,), and where that is fewer than D, ranks (see `_each_rank`); where they are few, cell_tokens and
        cell_cost (L * D,), lanes of all sources in order, all ranks of a lane together; and, where the step has any,
        images (see `_images`).
    """
    num_ranks = graph.tree.size("dp")
    rank_N = graph.bin_N // graph.bins_per_rank
    group_N, num_groups = rank_N * rank_groups(num_ranks) // num_ranks, rank_groups(num_ranks)
    align = graph.shape.align
    tree: dict[str, object] = {
        "method": graph.method,
        "aligned_tokens": int((-(-graph.nodes.tokens_N // align) * align).sum()),
        "source_cost": _cost(graph, graph.nodes.source_N, len(lanes)),
        "rank_tokens": _sum(graph.nodes.tokens_N, group_N, num_groups),
        "rank_cost": _cost(graph, group_N, num_groups),
    }
    if num_groups < num_ranks:
        tree["ranks"] = _each_rank(graph, rank_N, num_ranks)
    num_cells = sum(lanes) * num_ranks
    if num_cells <= MAX_CELLS:
        first_S = np.cumsum(lanes).astype(np.int64) - np.array(lanes, np.int64)
        cell_N = (first_S[graph.nodes.source_N] + lane_N) * num_ranks + rank_N
        tree["cell_tokens"] = _sum(graph.nodes.tokens_N, cell_N, num_cells)
        tree["cell_cost"] = _cost(graph, cell_N, num_cells)
    if len(graph.images):
        tree["images"] = _images(graph)
    return tree


def _each_rank(graph: DGraph, rank_N: Int64Array, num_ranks: int) -> dict[str, object]:
    """Tokens and cost of every dp rank, (D,) each, packed: `unpacked` reads them. They lie close together."""
    cost_N = graph.cost_N if graph.cost_N is not None else graph.nodes.tokens_N
    cost_D = np.bincount(rank_N, weights=cost_N, minlength=num_ranks)
    tokens_D = np.bincount(rank_N, weights=graph.nodes.tokens_N, minlength=num_ranks)
    unit = RANK_UNIT / max(float(cost_D.mean()), 1e-9)
    return {"tokens": packed(tokens_D.astype(np.int64)), "cost": packed(np.rint(cost_D * unit).astype(np.int64))}


def _images(graph: DGraph) -> dict[str, object]:
    """Images by the rank of the mesh that encodes them: number, patches and encoder cost, (groups of ranks,) each.

    `is_hybrid` tells whether the strategy placed them by themselves. Costs are in millionths of the encoder's.
    """
    num_ranks, patches_K = graph.tree.world_size, graph.images.patches_K
    num_groups = rank_groups(num_ranks)
    group_K = graph.image_rank_K * num_groups // num_ranks
    return {
        "is_hybrid": graph.encoder_K is not None,
        "rank_images": _sum(np.ones_like(patches_K), group_K, num_groups),
        "rank_patches": _sum(patches_K, group_K, num_groups),
        "rank_cost": _shares(integer_costs(graph.encoder_cost, patches_K), group_K, num_groups),
    }


def _sum(value_N: Int64Array, index_N: Int64Array, num: int) -> list[int]:
    sums: list[int] = np.bincount(index_N, weights=value_N, minlength=num).astype(np.int64).tolist()
    return sums


def _cost(graph: DGraph, index_N: Int64Array, num: int) -> list[int]:
    return _shares(graph.cost_N if graph.cost_N is not None else graph.nodes.tokens_N, index_N, num)


def _shares(cost_N: Int64Array, index_N: Int64Array, num: int) -> list[int]:
    share = np.bincount(index_N, weights=cost_N, minlength=num) * (COST_UNIT / max(int(cost_N.sum()), 1))
    rounded: list[int] = np.rint(share).astype(np.int64).tolist()
    return rounded
