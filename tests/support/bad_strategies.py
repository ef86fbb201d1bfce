"""Strategies that break a rule each, and what is said of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster_server.planning.dgraph import DGraph
from loadmaster_server.planning.primitives import Placement


def loses(graph: DGraph) -> Placement:
    return Placement(node_N=np.arange(1, len(graph.nodes)), bin_N=graph.nodes.packed_N[1:])


def repeats(graph: DGraph) -> Placement:
    node_N = np.arange(len(graph.nodes))
    node_N[1] = 0
    return Placement(node_N=node_N, bin_N=graph.nodes.packed_N)


def overfills(graph: DGraph) -> npt.NDArray[np.int64]:
    return np.zeros(len(graph.nodes), np.int64)


def costs_less_than_nothing(graph: DGraph) -> Placement:
    return graph.distribute("dp").cost(lambda tokens_N: tokens_N - 1000).balance().plan()


def costs_no_number(graph: DGraph) -> Placement:
    return graph.distribute("dp").cost(lambda tokens_N: tokens_N * np.nan).balance().plan()


def in_threes(graph: DGraph) -> Placement:
    return graph.distribute("dp", group_size=3).cost(graph.backbone_cost).balance().plan()


def in_pairs(graph: DGraph) -> Placement:
    """Sound where dp is even."""
    return graph.distribute("dp", group_size=2).cost(graph.backbone_cost).balance().plan()


RULES = {
    "loses": "must place every piece exactly once, it loses sample (source",
    "repeats": "must place every piece exactly once, it",
    "overfills": "a bin must hold at most",
    "costs_less_than_nothing": "cost must be finite and at least 0, got -",
    "costs_no_number": "cost must be finite and at least 0, got nan",
    "in_threes": "group_size must divide the",
}
"""What a refusal says, by name of the strategy."""


def dotted(name: str) -> str:
    """As a run spec names it."""
    return f"{__name__}:{name}"
