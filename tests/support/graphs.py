"""Graphs of invented steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadmaster_flight.spec import Layout
from loadmaster_server.planning import ClientPlaceTree, DGraph
from loadmaster_server.planning.cost import CostModel
from loadmaster_server.planning.nodes import Images, Nodes, NodeState
from loadmaster_server.planning.pack import UNPLACED, best_fit
from loadmaster_server.planning.rules import StepShape

ALIGN = 16


def make_shape(num_bins: int, capacity: int, **fields: Any) -> StepShape:
    """A step of the layout pack."""
    shape = StepShape(
        step=7, num_bins=num_bins, row_len=capacity, rows=1, align=ALIGN, layout=Layout.PACK, skips_long=False,
        overdraw=0.01,
    )  # fmt: skip
    return dataclasses.replace(shape, **fields)


def make_graph(
    tokens: Sequence[int],
    *,
    mesh: Mapping[str, int] | ClientPlaceTree,
    num_bins: int,
    capacity: int,
    packed: Sequence[int] | None = None,
    images: Sequence[tuple[int, int]] = (),
    sources: Sequence[int] | None = None,
    cost: CostModel | None = None,
    **fields: Any,
) -> DGraph:
    """A step whose piece i is sample i of shard 0 and has `tokens[i]`, packed best-fit unless `packed` says how.

    `images` are pairs (piece, patches).
    """
    shape = make_shape(num_bins, capacity, **fields)
    tokens_N = np.array(tokens, np.int64)
    source_N = np.zeros(len(tokens), np.int64) if sources is None else np.sort(np.array(sources, np.int64))
    key_N6 = np.zeros((len(tokens), 6), np.int64)
    key_N6[:, 0], key_N6[:, 4] = source_N, np.arange(len(tokens))
    size_N = np.ones_like(tokens_N) if shape.layout is Layout.PAD else -(-tokens_N // ALIGN)
    nodes = Nodes(
        key_N6=key_N6,
        tokens_N=tokens_N,
        size_N=size_N,
        packed_N=np.array(_packed(size_N, shape) if packed is None else packed, np.int64),
        state_N=np.full(len(tokens), NodeState.MEASURED, np.uint8),
    )
    node_K, patches_K = (np.array([pair[at] for pair in images], np.int64) for at in (0, 1))
    return DGraph(
        shape=shape,
        tree=mesh if isinstance(mesh, ClientPlaceTree) else ClientPlaceTree.of(mesh),
        nodes=nodes,
        images=Images(node_K=node_K, patches_K=patches_K),
        source_names=("web", "code"),
        weights_S=(3 << 28, 1 << 28),
        backbone_cost=cost or CostModel(linear=4096.0, quadratic=1.0),
        encoder_cost=CostModel(linear=12_288.0, quadratic=1.0),
        strategy="tried",
    )


def _packed(size_N: np.ndarray, shape: StepShape) -> list[int]:
    cap = shape.rows if shape.layout is Layout.PAD else shape.capacity // ALIGN
    order = np.argsort(-size_N, kind="stable")
    bins = np.empty(len(size_N), np.int64)
    bins[order] = best_fit(size_N[order].tolist(), shape.num_bins, cap)
    assert UNPLACED not in bins, "the invented step does not fit its bins"
    return bins.tolist()


def lognormal(num_tokens: int, *, capacity: int, seed: int = 0) -> list[int]:
    """Lengths with a long tail, cut at `capacity`, that add up to about `num_tokens` with padding."""
    rng, lengths, total = np.random.default_rng(seed), [], 0
    while True:
        length = min(1 + int(rng.lognormal(6.3, 1.3)), capacity)
        total += -(-length // ALIGN) * ALIGN
        if total > num_tokens:
            return lengths
        lengths.append(length)


def bin_costs(graph: DGraph, bin_N: np.ndarray) -> np.ndarray:
    """Backbone cost of each rank's microbatches, float64 (D, M)."""
    cost_N = graph.backbone_cost(graph.nodes.tokens_N)
    return np.bincount(bin_N, weights=cost_N, minlength=graph.num_bins).reshape(-1, graph.bins_per_rank)
