"""Placing a step's membership on the mesh by a strategy, and the check that every placement passes.

# N = pieces, K = images, B = bins
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from loadmaster_flight.spec import Layout, ModelSpec, RunSpec
from loadmaster_flight.wire.errors import LoadmasterError

from .cost import DEFAULT_COST, CostModel, transformer_cost, vit_cost
from .dgraph import DGraph
from .nodes import Images, Nodes, NodeState
from .pieces import FIRST, SAMPLE_KEY, PieceTable
from .place_tree import WORLD, ClientPlaceTree
from .primitives import Placement, fault
from .rows import Int64Array
from .rules import StepShape
from .strategies import Strategy, load_strategy

DEFAULT_ENCODER_COST = CostModel(linear=12_288.0, quadratic=1.0)
"""Shape of a 2B vision transformer (hidden 2048, 40 layers): crossover 12,288 patches."""


def costs_of(model: ModelSpec) -> tuple[CostModel, CostModel]:
    """Cost of a document in the backbone and of an image in the encoder, from the run spec's `model`."""
    backbone, encoder = DEFAULT_COST, DEFAULT_ENCODER_COST
    if model.backbone is not None:
        backbone = transformer_cost(**model.backbone.model_dump())
    if model.encoder is not None:
        encoder = vit_cost(**model.encoder.model_dump())
    return backbone, encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Placer:
    """Places the steps of a run on one mesh. Pure."""

    name: str
    strategy: Strategy
    tree: ClientPlaceTree
    source_names: tuple[str, ...]
    backbone_cost: CostModel
    encoder_cost: CostModel
    has_images: bool = False

    @staticmethod
    def of(spec: RunSpec, tree: ClientPlaceTree) -> Placer:
        """The placer of a run.

        Raises:
            SpecError: There is no such strategy.
        """
        backbone, encoder = costs_of(spec.model)
        return Placer(
            name=spec.strategy,
            strategy=load_strategy(spec.strategy),
            tree=tree,
            source_names=tuple(spec.source_names),
            backbone_cost=backbone,
            encoder_cost=encoder,
            has_images=spec.media is not None and spec.media.vision is not None,
        )

    def graph(self, pieces: PieceTable, packed_N: Int64Array, shape: StepShape, weights_S: list[int]) -> DGraph:
        """The graph of a step, before it is placed.

        Args:
            pieces: The step's pieces in canonical order.
            packed_N: Shape (N,), int64, the bin that membership packed each into.
        """
        is_padded = shape.layout is Layout.PAD
        nodes = Nodes(
            key_N6=pieces.values_NP[:, [*SAMPLE_KEY, FIRST]],
            tokens_N=pieces.tokens_N,
            size_N=np.ones(len(pieces), np.int64) if is_padded else pieces.aligned_N(shape.align) // shape.align,
            packed_N=packed_N,
            state_N=np.full(len(pieces), NodeState.MEASURED, np.uint8),
        )
        return DGraph(
            shape=shape,
            tree=self.tree,
            nodes=nodes,
            images=Images.of_lists(pieces.patches),
            source_names=self.source_names,
            weights_S=tuple(weights_S),
            backbone_cost=self.backbone_cost,
            encoder_cost=self.encoder_cost,
            strategy=self.name,
        )

    def place(self, graph: DGraph) -> DGraph:
        """The graph with every piece in its final bin and its backbone cost; `graph.method` says how.

        Images have the ranks that encode them where the strategy distributes images and the run has any, be it in
        other steps.

        Raises:
            SpecError: The strategy raised, or its placement breaks a rule; names the rule, strategy and sample.
        """
        decided = run_strategy(self.strategy, graph)
        placed = graph.cost(graph.backbone_cost).placed(decided.bin_N)
        encoder_K = _encoders(graph, decided) if self.has_images else None
        return replace(
            placed, method=decided.method, axis="dp", broadcasts=decided.broadcasts, encoder_K=encoder_K
        )  # fmt: skip


def _encoders(graph: DGraph, decided: Placement) -> Int64Array | None:
    """Rank of the mesh for each image, int64 (K,): the first one of the consumer that it is distributed to."""
    if decided.consumer_K is None:
        return None
    leaf_K = graph.tree.consumers(decided.image_axis or WORLD)[:, 0]
    return np.asarray(leaf_K[np.asarray(decided.consumer_K, np.int64)], np.int64)


def run_strategy(strategy: Strategy, graph: DGraph) -> Placement:
    """What a strategy decides, with the pieces in the graph's order, checked.

    Raises:
        SpecError: The strategy raised, or its placement breaks a rule; names the rule, strategy and sample.
    """
    try:
        answer = strategy(graph)
    except LoadmasterError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise fault(graph, f"raised {type(error).__name__}: {error},") from error
    decided = _as_placement(graph, answer)
    ordered = replace(decided, node_N=np.arange(len(graph.nodes)), bin_N=_in_graph_order(graph, decided))
    _check_bins(graph, ordered.bin_N)
    _check_images(graph, ordered)
    return ordered


def _as_placement(graph: DGraph, answer: Placement | npt.ArrayLike) -> Placement:
    if isinstance(answer, Placement):
        return answer
    if answer is None or isinstance(answer, DGraph):
        raise fault(graph, f"must return graph.plan() or the bin of each piece, got {type(answer).__name__},")
    return Placement(node_N=np.arange(len(graph.nodes)), bin_N=np.asarray(answer), method="own")


def _in_graph_order(graph: DGraph, decided: Placement) -> Int64Array:
    """Bin of each piece, int64 (N,): every piece is placed exactly once."""
    num, node_N, bin_N = len(graph.nodes), np.asarray(decided.node_N), np.asarray(decided.bin_N)
    is_whole = node_N.dtype.kind in "iu" and bin_N.dtype.kind in "iu"
    if not is_whole or node_N.ndim != 1 or node_N.shape != bin_N.shape:
        shapes = f"shapes {node_N.shape} and {bin_N.shape}, dtypes {node_N.dtype} and {bin_N.dtype}"
        raise fault(graph, f"must give one whole-numbered bin for each of {num} pieces, got {shapes}")
    if len(node_N) and not (node_N.min() >= 0 and node_N.max() < num):
        raise fault(graph, f"must place pieces in [0, {num}), got {node_N.min()}..{node_N.max()}")
    times_N = np.bincount(node_N, minlength=num)
    for rule, wrong in (("loses", np.flatnonzero(times_N == 0)), ("repeats", np.flatnonzero(times_N > 1))):
        if len(wrong):
            example = f"{graph.describe(int(wrong[0]))}, {len(wrong)} in all"
            raise fault(graph, f"must place every piece exactly once, it {rule} {example},")
    ordered_N = np.empty(num, np.int64)
    ordered_N[node_N] = bin_N
    return ordered_N


def _check_bins(graph: DGraph, bin_N: Int64Array) -> None:
    num, shape, size_N = graph.num_bins, graph.shape, graph.nodes.size_N
    wrong = np.flatnonzero((bin_N < 0) | (bin_N >= num))
    if len(wrong):
        i = int(wrong[0])
        raise fault(graph, f"bins must be in [0, {num}), got {bin_N[i]} for {graph.describe(i)}")
    is_padded = shape.layout is Layout.PAD
    cap, unit = (shape.rows, "rows") if is_padded else (shape.capacity // shape.align, f"units of {shape.align} tokens")
    used_B = np.bincount(bin_N, weights=size_N, minlength=num)
    if len(bin_N) and used_B.max() > cap:
        b = int(used_B.argmax())
        last = graph.describe(int(np.flatnonzero(bin_N == b)[-1]))
        raise fault(graph, f"a bin must hold at most {cap} {unit}, got {int(used_B[b])} in bin {b} with {last}")
    _check_none_empty(graph, used_B)


def _check_none_empty(graph: DGraph, used_B: npt.NDArray[np.generic]) -> None:
    """Membership leaves bins empty only in a stream's last step."""
    empty, is_full = np.flatnonzero(used_B == 0), len(np.unique(graph.nodes.packed_N)) == graph.num_bins
    if len(empty) and is_full:
        raise fault(graph, f"no bin may be empty where membership fills all {graph.num_bins}, got bin {empty[0]} empty")


def _check_images(graph: DGraph, placement: Placement) -> None:
    if placement.consumer_K is None:
        return
    num, consumer_K = len(graph.tree.consumers(placement.image_axis or WORLD)), np.asarray(placement.consumer_K)
    if consumer_K.shape != graph.images.patches_K.shape or consumer_K.dtype.kind not in "iu":
        rule = f"must give one consumer for each of {len(graph.images)} images"
        raise fault(graph, f"{rule}, got shape {consumer_K.shape}, dtype {consumer_K.dtype}")
    wrong = np.flatnonzero((consumer_K < 0) | (consumer_K >= num))
    if len(wrong):
        i = int(wrong[0])
        at = graph.describe(int(graph.images.node_K[i]))
        raise fault(graph, f"images must go to consumers in [0, {num}), got {consumer_K[i]} for one of {at}")
