"""What the primitives of a DGraph do.

# N = pieces (or images of a graph restricted to them), K = consumers, B = bins, D = dp ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loadmaster_flight.wire.errors import SpecError

from .balancing import aligned_bins, by_piece, lightest_each, whole_bins
from .cost import CostModel, integer_costs, to_integers
from .nodes import Modality
from .place_tree import AXES, WORLD, Role
from .rows import Int64Array

if TYPE_CHECKING:
    from .dgraph import CostFunction, DGraph

METHODS = ("lpt", "aligned")
LEVELS = ("rank", "microbatch")
_SHARE_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a strategy decides.

    Attributes:
        node_N: Shape (N,), int64, pieces by position in the graph, each once.
        bin_N: Shape (N,), int64, the bin of each; bin b is microbatch b % M of dp rank b // M.
        consumer_K: Shape (K,), int64, which consumer of `image_axis` encodes each image; None: not placed.
        broadcasts: Axes along which one rank fetches for all.
        method: How the text was balanced.
    """

    node_N: Int64Array
    bin_N: Int64Array
    consumer_K: Int64Array | None = None
    image_axis: str | None = None
    broadcasts: tuple[str, ...] = ()
    method: str = "packed"


def fault(graph: DGraph, rule: str) -> SpecError:
    """An error that names the strategy and the step."""
    return SpecError(f"strategy {graph.strategy}: {rule} at {graph.name}", field="strategy")


def sums(value_N: Int64Array, index_N: Int64Array, num: int) -> Int64Array:
    """Sum of the values at each index, int64 (num,); totals must stay below 2**53."""
    return np.bincount(index_N, weights=value_N, minlength=num).astype(np.int64)


def check_schedule(graph: DGraph, schedule: dict[str, float]) -> None:
    """Check that the step was mixed as the strategy says."""
    for name, share in graph.schedule.items():
        if abs(schedule.get(name, 0.0) - share) > _SHARE_TOLERANCE:
            raise fault(graph, f"mix must be what membership used, {name} = {share:g}, got {schedule.get(name, 0.0):g}")


def check_axis(graph: DGraph, axis: str, group_size: int | None) -> None:
    """Check what `distribute` is given."""
    axes = ["dp"] if graph.modality is Modality.TEXT else ["dp", "cp", WORLD]
    if axis not in axes:
        raise fault(graph, f"distribute must name one of {axes} for {graph.modality.value}, got {axis!r}")
    num = len(graph.tree.consumers(axis))
    if group_size is not None and (group_size < 1 or num % group_size):
        raise fault(graph, f"group_size must divide the {num} consumers of {axis}, got {group_size}")


def check_broadcast(graph: DGraph, axis: str) -> None:
    """Check that the ranks along an axis want the same."""
    if axis not in AXES:
        raise fault(graph, f"broadcast_at must name an axis of {list(AXES)}, got {axis!r}")
    if graph.tree.role(axis) is Role.SPLIT:
        raise fault(graph, f"broadcast_at must name an axis that does not split samples, got {axis!r}")


def checked_costs(graph: DGraph, fn: CostModel | CostFunction) -> Int64Array:
    """Integer costs of the pieces or images, int64 (N,), with a sum below 2**53."""
    if isinstance(fn, CostModel):
        return integer_costs(fn, graph.tokens_N)
    cost_N = np.asarray(fn(graph.tokens_N))
    if cost_N.shape != graph.tokens_N.shape or cost_N.dtype.kind not in "iuf":
        rule = f"cost must return one number for each of {len(graph.tokens_N)} {graph.modality.value} nodes"
        raise fault(graph, f"{rule}, got shape {cost_N.shape}, dtype {cost_N.dtype}")
    wrong = np.flatnonzero(~(np.isfinite(cost_N) & (cost_N >= 0)))
    if len(wrong):
        i = int(wrong[0])
        node = i if graph.modality is Modality.TEXT else int(graph.images.node_K[i])
        raise fault(graph, f"cost must be finite and at least 0, got {cost_N[i]} for {graph.describe(node)}")
    return to_integers(cost_N)


def balanced(graph: DGraph, method: str, level: str) -> tuple[Int64Array, str]:
    """Where the pieces (images) go, int64 (N,), and what did it."""
    if method not in METHODS or level not in LEVELS:
        raise fault(
            graph, f"balance must have a method of {METHODS} and a level of {LEVELS}, got {method!r}, {level!r}"
        )
    if graph.axis is None or graph.cost_N is None:
        raise fault(graph, "balance must come after distribute and cost")
    if graph.modality is Modality.IMAGE:
        return _balanced_images(graph, graph.axis, graph.cost_N, level), "lpt"
    if method == "aligned":
        place_N = graph.nodes.packed_N if graph.place_N is None else graph.place_N
        cost_B = sums(graph.cost_N, place_N, graph.num_bins)
        return aligned_bins(cost_B, graph.bins_per_rank, graph.tree.size("pp"))[place_N], f"{graph.method}, aligned"
    return whole_bins(graph, graph.cost_N) if level == "rank" else by_piece(graph, graph.cost_N)


def _balanced_images(graph: DGraph, axis: str, cost_N: Int64Array, level: str) -> Int64Array:
    """Longest processing time first over the consumers; groups share the images out in order."""
    index_N = (graph.bin_N % graph.bins_per_rank)[graph.images.node_K]
    if level == "rank":
        index_N = np.zeros(len(cost_N), np.int64)
    speed_K = graph.tree.speeds(axis)
    size = graph.group_size or len(speed_K)
    group_N = np.arange(len(cost_N)) * (len(speed_K) // size) // max(len(cost_N), 1)
    place_N = np.empty(len(cost_N), np.int64)
    for group in range(len(speed_K) // size):
        first, at = group * size, np.flatnonzero(group_N == group)
        place_N[at] = first + lightest_each(cost_N[at], index_N[at], speed_K[first : first + size])
    return place_N


def planned(graphs: Sequence[DGraph]) -> Placement:
    """Merge graphs of different modalities into one placement; text that nobody balanced stays as packed."""
    by_modality = {graph.modality: graph for graph in graphs}
    base = by_modality.get(Modality.TEXT, graphs[0])
    if len(by_modality) != len(graphs):
        raise fault(base, f"plan must have one graph a modality, got {[g.modality.value for g in graphs]}")
    images, text = by_modality.get(Modality.IMAGE), by_modality.get(Modality.TEXT)
    if images is not None and images.place_N is None:
        raise fault(base, "plan must have images that are balanced, got a graph that is not")
    place_N = text.place_N if text is not None else None
    return Placement(
        node_N=np.arange(len(base.nodes)),
        bin_N=base.nodes.packed_N if place_N is None else place_N,
        consumer_K=images.place_N if images else None,
        image_axis=images.axis if images else None,
        broadcasts=tuple(dict.fromkeys(axis for graph in graphs for axis in graph.broadcasts)),
        method=text.method if text is not None else "packed",
    )
