"""The strategies that come with Loadmaster."""

from __future__ import annotations

from ..dgraph import DGraph
from ..primitives import Placement


def sequential(graph: DGraph) -> Placement:
    """Microbatches in the order in which they were packed: what a loader without balance does."""
    return graph.distribute("dp").broadcast_at("tp").plan()


def bins_by_cost(graph: DGraph) -> Placement:
    """Packed microbatches as they are, dealt to the ranks by cost."""
    return graph.distribute("dp").cost(graph.backbone_cost).balance("lpt", level="rank").broadcast_at("tp").plan()


def llm_balance(graph: DGraph) -> Placement:
    """Documents to ranks, and inside a rank to microbatches, so that attention and all the rest together are even.

    Images go with their documents, and what it costs to encode them does not count: see `vlm_hybrid`.
    """
    text = graph.distribute("dp").cost(graph.backbone_cost).balance("lpt", level="microbatch")
    return text.broadcast_at("tp").plan()


def vlm_hybrid(graph: DGraph) -> Placement:
    """Two models, two balances: documents over dp for the backbone, images over the whole world for the encoder.

    Images are even in every index of microbatches: that is when embeddings are exchanged.
    """
    text = graph.restrict("text").distribute("dp").cost(graph.backbone_cost).balance("lpt", level="microbatch")
    images = text.restrict("image").distribute("world").cost(graph.encoder_cost).balance("lpt", level="microbatch")
    return text.broadcast_at("tp").plan(images)


def long_short_context(graph: DGraph) -> Placement:
    """Long documents beside short ones: as llm_balance, and the microbatches of an index are alike on all ranks.

    Where ranks meet in every microbatch (sharded parameters, gradient buckets) the costliest of an index sets its
    time; this order makes the sum of those least.
    """
    text = graph.distribute("dp").cost(graph.backbone_cost).balance("lpt", level="microbatch")
    return text.balance("aligned").broadcast_at("tp").plan()
