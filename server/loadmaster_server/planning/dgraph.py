"""The DGraph of a step: its pieces, where they come from and go to, and the primitives that strategies are made of.

# N = pieces, K = images, B = bins, D = dp ranks, S = sources
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.errors import NotFoundError

from . import primitives
from .cost import CostModel, integer_costs
from .nodes import Edges, Images, Modality, Nodes, NodeState, edges_between
from .place_tree import ClientPlaceTree
from .primitives import Placement
from .rows import Int64Array
from .rules import StepShape

CostFunction = Callable[[Int64Array], npt.ArrayLike]
"""From the tokens of each piece (image: patches), int64 (N,), to its cost, (N,), finite and not negative."""
Place = Literal["source", "packed", "bin", "rank", "encoder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The way of one piece. `rank`, `microbatch` and `leaves` are None until it is placed.

    Attributes:
        patches: Of each unit of its media.
        encoders: The rank of the mesh that encodes each unit; None until it is placed.
    """

    source: str
    sample: tuple[int, ...]
    first_token: int
    num_tokens: int
    packed_bin: int
    rank: int | None
    microbatch: int | None
    leaves: tuple[int, ...] | None
    patches: tuple[int, ...]
    encoders: tuple[int, ...] | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DGraph:
    """A step's graph. Every primitive returns a new graph; nothing is changed in place.

    Attributes:
        shape: The step's caps.
        tree: The mesh.
        nodes: Its pieces.
        images: Their images.
        weights_S: Shape (S,), int64, the mixture that membership used, 2**30 = 1.
        backbone_cost: Cost of a document by its tokens.
        encoder_cost: Cost of an image by its patches.
        strategy: Name of the strategy, for messages.
        modality: What the primitives are about: text unless the graph was restricted.
        cost_N: Shape (N,) or (K,), int64 cost of each piece (image) once `cost` was given.
        place_N: Shape (N,) bins or (K,) consumers, int64, once `balance` was called.
        document_bin_N: Shape (N,), int64, where the documents were when the graph was restricted to images.
        encoder_K: Shape (K,), int64, the rank that encodes each image, once these are placed by themselves; None: each
            goes with its document.
    """

    shape: StepShape
    tree: ClientPlaceTree
    nodes: Nodes
    images: Images
    source_names: tuple[str, ...]
    weights_S: tuple[int, ...]
    backbone_cost: CostModel
    encoder_cost: CostModel
    strategy: str = ""
    modality: Modality = Modality.TEXT
    axis: str | None = None
    group_size: int | None = None
    cost_N: Int64Array | None = None
    place_N: Int64Array | None = None
    document_bin_N: Int64Array | None = None
    encoder_K: Int64Array | None = None
    method: str = "packed"
    broadcasts: tuple[str, ...] = ()

    # what a strategy asks

    @property
    def num_bins(self) -> int:
        """G, microbatches of all dp ranks together."""
        return self.shape.num_bins

    @property
    def bins_per_rank(self) -> int:
        """M, microbatches of one dp rank."""
        return self.num_bins // self.tree.size("dp")

    @property
    def bin_N(self) -> Int64Array:
        """Bin of each piece as it stands, int64 (N,): as packed until it is placed."""
        if self.place_N is not None and self.modality is Modality.TEXT:
            return self.place_N
        return self.nodes.packed_N if self.document_bin_N is None else self.document_bin_N

    @property
    def tokens_N(self) -> Int64Array:
        """Tokens of each piece, or patches of each image of a graph that is restricted to images."""
        return self.images.patches_K if self.modality is Modality.IMAGE else self.nodes.tokens_N

    @property
    def schedule(self) -> dict[str, float]:
        """Share of each source in this step."""
        return {name: w / (1 << 30) for name, w in zip(self.source_names, self.weights_S, strict=True)}

    # primitives

    def mix(self, schedule: dict[str, float]) -> DGraph:
        """Declare the mixture that the strategy counts on. Membership is decided before; this only checks it.

        Raises:
            SpecError: The step was mixed otherwise.
        """
        primitives.check_schedule(self, schedule)
        return self

    def distribute(self, axis: str, group_size: int | None = None) -> DGraph:
        """Distribute over the consumers of an axis: `dp`; for images also `cp` or `world`.

        Args:
            group_size: Balance only inside groups of that many neighbouring consumers; a group keeps the packed bins
                that are its own.

        Raises:
            SpecError: The axis cannot take this modality, or group_size does not divide its size.
        """
        primitives.check_axis(self, axis, group_size)
        return replace(self, axis=axis, group_size=group_size)

    def cost(self, fn: CostModel | CostFunction) -> DGraph:
        """Give every piece (image) a cost: a cost model, or any function of the array of tokens (patches).

        Raises:
            SpecError: A cost is negative or not finite, or the shape is wrong; names rule, strategy and sample.
        """
        return replace(self, cost_N=primitives.checked_costs(self, fn))

    def balance(self, method: str = "lpt", level: str = "microbatch") -> DGraph:
        """Place the pieces (images) so that costs are even.

        Args:
            method: `lpt`: even out. `aligned`: order each rank's microbatches by cost, so that those of an index are
                alike on all ranks.
            level: `microbatch`: pieces go to ranks and microbatches; images to consumers, those of every index of
                microbatches evenly, as ranks that send each other what they encoded meet in each. `rank`: packed
                microbatches go to ranks as they are; images to consumers, evenly over the whole step.

        Raises:
            SpecError: `distribute` or `cost` is missing, or the method or level is unknown.
        """
        place_N, name = primitives.balanced(self, method, level)
        return replace(self, place_N=place_N, method=name)

    def broadcast_at(self, axis: str) -> DGraph:
        """Declare that one rank along `axis` fetches and the others get it from that one.

        Raises:
            SpecError: The axis splits data: its ranks do not want the same.
        """
        primitives.check_broadcast(self, axis)
        return replace(self, broadcasts=(*self.broadcasts, axis))

    def plan(self, *others: DGraph) -> Placement:
        """The placement, together with that of graphs restricted to other modalities.

        Raises:
            SpecError: Two graphs place the same modality, or images are distributed but not balanced.
        """
        return primitives.planned((self, *others))

    # restriction, lineage, edges

    def restrict(self, modality: str) -> DGraph:
        """The graph of one modality alone, with nothing distributed, costed or placed yet.

        Images of a graph whose text is balanced know the microbatches of their documents.
        """
        if modality not in list(Modality):
            rule = f"restrict must name one of {[m.value for m in Modality]}, got {modality!r}"
            raise primitives.fault(self, rule)
        bin_N = self.bin_N if modality == Modality.IMAGE else None
        return replace(
            self, modality=Modality(modality), axis=None, group_size=None, cost_N=None, place_N=None,
            document_bin_N=bin_N,
        )  # fmt: skip

    def placed(self, bin_N: Int64Array) -> DGraph:
        """The graph with every piece in its bin, in the state planned."""
        nodes = self.nodes.advanced(NodeState.PLANNED, np.arange(len(self.nodes)))
        return replace(self, nodes=nodes, place_N=bin_N)

    def advance(self, to: NodeState, at: Int64Array | None = None) -> DGraph:
        """The graph with pieces (by default all) in a later state.

        Raises:
            BadRequestError: A piece cannot go there from where it is.
        """
        return replace(self, nodes=self.nodes.advanced(to, np.arange(len(self.nodes)) if at is None else at))

    def edges(self, start: Place, end: Place) -> Edges:
        """Aggregated edges of the text: source -> packed -> bin -> rank. Cost is 0 where none was given.

        With `encoder` at an end they are those of the images: to the rank that encodes each. `pieces_E` counts images,
        `tokens_E` patches, and the cost is the encoder's.
        """
        if "encoder" in (start, end):
            return self._image_edges(start, end)
        costs_N = self.cost_N if self.cost_N is not None else np.zeros(len(self.nodes), np.int64)
        return edges_between(self._place_of(start), self._place_of(end), self.nodes.tokens_N, costs_N)

    def _image_edges(self, start: Place, end: Place) -> Edges:
        images = self.images
        start_K, end_K = (
            self.image_rank_K if kind == "encoder" else self._place_of(kind)[images.node_K] for kind in (start, end)
        )
        return edges_between(start_K, end_K, images.patches_K, integer_costs(self.encoder_cost, images.patches_K))

    @property
    def image_rank_K(self) -> Int64Array:
        """Rank of the mesh that encodes each image, int64 (K,); of those that go with their documents the first one
        of the dp rank.
        """
        if self.encoder_K is not None:
            return self.encoder_K
        rank_K = (self.bin_N // self.bins_per_rank)[self.images.node_K]
        return np.asarray(self.tree.consumers("dp")[rank_K, 0], np.int64)

    def _place_of(self, kind: Place) -> Int64Array:
        if kind == "source":
            return self.nodes.source_N
        bin_N = self.nodes.packed_N if kind == "packed" else self.bin_N
        return bin_N // self.bins_per_rank if kind == "rank" else bin_N

    def lineage(self, i: int) -> Lineage:
        """Where piece `i` comes from and goes to."""
        nodes, place = self.nodes, None
        if self.place_N is not None and self.modality is Modality.TEXT:
            place = divmod(int(self.place_N[i]), self.bins_per_rank)
        key = [int(value) for value in nodes.key_N6[i]]
        images = self.images.of_node(i)
        return Lineage(
            source=self.source_names[key[0]],
            sample=tuple(key[:5]),
            first_token=key[5],
            num_tokens=int(nodes.tokens_N[i]),
            packed_bin=int(nodes.packed_N[i]),
            rank=place[0] if place else None,
            microbatch=place[1] if place else None,
            leaves=tuple(self.tree.consumers("dp")[place[0]].tolist()) if place else None,
            patches=tuple(self.images.patches_K[images].tolist()),
            encoders=tuple(self.image_rank_K[images].tolist()) if place else None,
            state=NodeState(nodes.state_N[i]).name.lower(),
        )

    def explain(self, sample: Sequence[int]) -> str:
        """Why a sample (source, epoch, shard, block, pos) is where it is, a line for each of its pieces.

        Raises:
            NotFoundError: It is not in this step.
        """
        found_N = self.nodes.of_sample(tuple(sample))
        if not len(found_N):
            raise NotFoundError(f"sample {tuple(sample)} (source, epoch, shard, block, pos) is not in {self.name}")
        return "\n".join(self._explained(int(i)) for i in found_N)

    def _explained(self, i: int) -> str:
        way = self.lineage(i)
        text = f"{self.describe(i)}: {way.num_tokens} tokens, packed into bin {way.packed_bin}"
        if way.leaves is None or self.place_N is None:
            return f"{text}, {way.state}"
        text += f"; {way.state} by {self.strategy or self.method} ({self.method}) on dp rank {way.rank} "
        text += f"(ranks {', '.join(map(str, way.leaves))}), microbatch {way.microbatch}"
        if way.patches:
            pairs = zip(way.patches, way.encoders or (), strict=False)
            text += f"; images: {', '.join(f'{patches} patches on rank {rank}' for patches, rank in pairs)}"
        if self.cost_N is None:
            return text
        bin_cost_B = primitives.sums(self.cost_N, self.place_N, self.num_bins)
        rank_cost_D = bin_cost_B.reshape(-1, self.bins_per_rank).sum(axis=1)
        of_bin = bin_cost_B[self.place_N[i]] / max(bin_cost_B.mean(), 1)
        of_rank = rank_cost_D[way.rank] / max(rank_cost_D.mean(), 1)
        share = self.cost_N[i] / max(bin_cost_B[self.place_N[i]], 1)
        return f"{text}, {share:.1%} of its cost, which is {of_bin:.4f} x the mean; its rank {of_rank:.4f} x the mean"

    # words for messages

    @property
    def name(self) -> str:
        """The step, for messages."""
        return f"step {self.shape.step}"

    def describe(self, i: int) -> str:
        """A piece, for messages."""
        source, *rest = (int(value) for value in self.nodes.key_N6[i])
        words = ", ".join(
            f"{name} {value}" for name, value in zip(("epoch", "shard", "block", "pos"), rest, strict=False)
        )
        cut = f", from token {rest[-1]}" if rest[-1] else ""
        return f"sample (source {self.source_names[source]}, {words}{cut})"
