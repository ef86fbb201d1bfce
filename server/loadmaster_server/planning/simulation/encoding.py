"""How even the encoder's work of a step is, as planned and with images that stay where their documents are.

# K = images, M = microbatches of a rank, W = ranks
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dgraph import DGraph
from ..rows import Int64Array
from .loaders import images_at_home


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Images of a step. Ranks meet in every index of microbatches, so the costliest rank of each sets its time.

    Attributes:
        max_over_mean: Sum over the indexes of the costliest rank's work, over a rank's mean work.
        bound: What no placement goes under: an image is not divided.
        at_home: `max_over_mean` where the ranks of a document's dp rank take its images in turn.
    """

    num_images: int
    num_patches: int
    max_over_mean: float
    bound: float
    at_home: float


def encoding_of(graph: DGraph) -> Encoding | None:
    """Of a placed step; None: it has no images. Images that the strategy does not distribute are at home."""
    if not len(graph.images):
        return None
    bin_K = graph.bin_N[graph.images.node_K]
    rank_K, index_K = np.divmod(bin_K, graph.bins_per_rank)
    home_K = images_at_home(rank_K, graph.tree.world_size // graph.tree.size("dp"))
    at_home, bound = _waits(graph, index_K, home_K)
    planned = at_home if graph.encoder_K is None else _waits(graph, index_K, graph.encoder_K)[0]
    return Encoding(
        num_images=len(graph.images),
        num_patches=int(graph.images.patches_K.sum()),
        max_over_mean=planned,
        bound=bound,
        at_home=at_home,
    )


def _waits(graph: DGraph, index_K: Int64Array, rank_K: Int64Array) -> tuple[float, float]:
    """Costliest over mean, and its bound."""
    num, world, cost_K = graph.bins_per_rank, graph.tree.world_size, graph.encoder_cost(graph.images.patches_K)
    load_MW = np.bincount(index_K * world + rank_K, weights=cost_K, minlength=num * world).reshape(num, world)
    largest_M = np.zeros(num)
    np.maximum.at(largest_M, index_K, cost_K)
    mean = float(load_MW.sum()) / world
    least = float(np.maximum(load_MW.mean(axis=1), largest_M).sum())
    return float(load_MW.max(axis=1).sum()) / mean, least / mean
