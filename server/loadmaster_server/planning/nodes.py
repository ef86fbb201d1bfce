"""The nodes and edges of a step's graph, as arrays.

# N = pieces, K = images, E = edges
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.errors import BadRequestError

from .columns import Int64Array
from .lists import Lists

KEY = ("source", "epoch", "shard", "block", "pos", "first_token")


class Modality(StrEnum):
    """Part of a graph that a strategy places by itself."""

    TEXT = "text"
    IMAGE = "image"


class NodeState(IntEnum):
    """measured: known to the planner. planned: has its bin. constructed: is in a microbatch. delivered: all ranks have
    it. skipped: left out on purpose. bad: its content cannot be served."""

    MEASURED = 0
    PLANNED = 1
    CONSTRUCTED = 2
    DELIVERED = 3
    SKIPPED = 4
    BAD = 5


_S = NodeState
NEXT_STATES = {
    _S.MEASURED: {_S.PLANNED, _S.SKIPPED, _S.BAD},
    _S.PLANNED: {_S.CONSTRUCTED, _S.DELIVERED, _S.BAD},
    _S.CONSTRUCTED: {_S.DELIVERED, _S.BAD},
    _S.DELIVERED: set(),
    _S.SKIPPED: set(),
    _S.BAD: set(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Pieces of a step in canonical order.

    Attributes:
        key_N6: Shape (N, 6), int64: source, epoch, shard, block, pos, first_token; ascending.
        tokens_N: Shape (N,), int64, real tokens.
        size_N: Shape (N,), int64, what each takes of a bin's capacity: units of `align`; layout pad: 1 row.
        packed_N: Shape (N,), int64, the bin that membership packed it into.
        state_N: Shape (N,), uint8, see NodeState.
    """

    key_N6: Int64Array
    tokens_N: Int64Array
    size_N: Int64Array
    packed_N: Int64Array
    state_N: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.key_N6)

    @property
    def source_N(self) -> Int64Array:
        return self.key_N6[:, 0]

    def of_sample(self, sample: tuple[int, ...]) -> Int64Array:
        """Positions of the pieces of a sample (source, epoch, shard, block, pos), int64."""
        if len(sample) != len(KEY) - 1:
            raise BadRequestError(f"a sample must be (source, epoch, shard, block, pos), got {sample}")
        return np.flatnonzero((self.key_N6[:, :-1] == np.array(sample, np.int64)).all(axis=1))

    def advanced(self, to: NodeState, at: Int64Array) -> Nodes:
        """The same with the nodes at `at` in a later state.

        Raises:
            BadRequestError: A node cannot go there from where it is.
        """
        for state in np.unique(self.state_N[at]):
            if to not in NEXT_STATES[NodeState(state)]:
                raise BadRequestError(f"a node that is {NodeState(state).name} cannot become {to.name}")
        state_N = self.state_N.copy()
        state_N[at] = to
        return replace(self, state_N=state_N)


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Images of a step: units of media, each encoded by itself (an image, a temporal group of a video, a band).

    Attributes:
        node_K: Shape (K,), int64, the piece that each belongs to, ascending.
        patches_K: Shape (K,), int64, patches before merging.
    """

    node_K: Int64Array
    patches_K: Int64Array

    def __len__(self) -> int:
        return len(self.node_K)

    def of_node(self, i: int) -> slice:
        """Positions of the images of a piece."""
        first, stop = np.searchsorted(self.node_K, [i, i + 1]).tolist()
        return slice(first, stop)

    @staticmethod
    def of_lists(patches: Lists) -> Images:
        """Images of pieces, from the patches of each one's units."""
        at_M, count_M, patches_K = patches.flat()
        return Images(node_K=np.repeat(at_M, count_M), patches_K=patches_K)

    @staticmethod
    def empty() -> Images:
        return Images(node_K=np.zeros(0, np.int64), patches_K=np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Edges between two kinds of places, one for each pair that a piece goes along.

    Attributes:
        from_E: Shape (E,), int64, ascending with `to_E`.
        to_E: Shape (E,), int64.
        pieces_E: Shape (E,), int64.
        tokens_E: Shape (E,), int64, real tokens.
        cost_E: Shape (E,), int64.
    """

    from_E: Int64Array
    to_E: Int64Array
    pieces_E: Int64Array
    tokens_E: Int64Array
    cost_E: Int64Array


def edges_between(from_N: Int64Array, to_N: Int64Array, tokens_N: Int64Array, cost_N: Int64Array) -> Edges:
    """Aggregate the pieces' ways (from_i, to_i)."""
    width = int(to_N.max()) + 1 if len(to_N) else 1
    pair_E, edge_N = np.unique(from_N * width + to_N, return_inverse=True)
    sums = [np.zeros(len(pair_E), np.int64) for _ in range(3)]
    for sum_E, value_N in zip(sums, (np.ones_like(tokens_N), tokens_N, cost_N), strict=True):
        np.add.at(sum_E, edge_N, value_N)
    return Edges(from_E=pair_E // width, to_E=pair_E % width, pieces_E=sums[0], tokens_E=sums[1], cost_E=sums[2])
