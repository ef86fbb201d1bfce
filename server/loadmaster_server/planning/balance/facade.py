"""The balance as the planner calls it: checked arrays in, a `Balanced` out.

# N = pieces, B = bins, D = ranks
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..compiled import interpreted
from ..cost import Float64Array, Int64Array
from .kernel import METHODS, solve
from .limits import Limits
from .padded import solve_padded
from .result import Balanced
from .sorting import RANK_BITS

NO_LIMIT = 1 << 40
COMPILE_FROM = 512
"""Pieces of a group from which on compiled code is used; below, plain Python takes some tens of milliseconds."""


def balance(
    size_N: npt.ArrayLike,
    cost_N: npt.ArrayLike,
    packed_N: npt.ArrayLike,
    *,
    num_ranks: int,
    per_rank: int,
    capacity: int,
    pp: int = 1,
    max_docs: int | None = None,
    group_size: int | None = None,
    speed_D: npt.ArrayLike | None = None,
) -> Balanced:
    """Place a step's pieces on ranks and microbatches so that the slowest rank is done as early as can be.

    Every piece is placed, no bin holds more than its caps, and no bin is empty where there are at least as many
    pieces as bins. Pure; the same input gives the same bytes on every machine, compiled or not. Any thread.

    Args:
        size_N: Shape (N,), sizes in units of the alignment, >= 1, in canonical order of the pieces.
        cost_N: Shape (N,), integer costs (`planning.cost.integer_costs`) that sum to less than 2**53; where all
            are 0 the sizes stand in.
        packed_N: Shape (N,), bin of each piece in the packed membership, which keeps the caps.
        num_ranks: D; `per_rank` is M: the bins are rank * M + m.
        capacity: Room of a bin, in the unit of the sizes.
        pp: Pipeline stages. With more than one a rank's time counts its costliest microbatch pp - 1 times more (what
            it is above the mean), and the order in a rank is small at both ends, large in the middle.
        max_docs: Pieces that a bin may hold.
        group_size: Ranks of an outer group: a piece stays in the group that its packed bin belongs to (bins in
            order, group_size * M each), and every group is balanced by itself.
        speed_D: Shape (D,), relative speed of the ranks, for mixed devices; all alike by default.

    Raises:
        ValueError: An argument is out of range; names it, the rule and the value.
    """
    size_N, cost_N, packed_N = (np.ascontiguousarray(x, np.int64) for x in (size_N, cost_N, packed_N))
    slow_D = _slowness(speed_D, num_ranks)
    docs = NO_LIMIT if max_docs is None else max_docs
    _check_mesh(num_ranks, per_rank, pp, group_size)
    _check_pieces(size_N, cost_N, packed_N, num_ranks * per_rank, capacity, docs)
    group = group_size or num_ranks
    bin_N, methods, bounds = np.empty_like(packed_N), {0}, [0.0, 0.0]
    for first, index in _groups(packed_N, num_ranks, group, per_rank):
        base, slow = first * per_rank, slow_D[first : first + group]
        cost = (cost_N[index] if cost_N[index].any() else size_N[index]).astype(np.float64)
        limits = Limits(per_rank, capacity, docs, float(pp - 1), float(cost.sum() / (group * per_rank)))
        way = solve if len(cost) >= COMPILE_FROM else interpreted(solve)
        found, method, *lows = way(size_N[index], cost, packed_N[index] - base, slow, limits)
        bin_N[index] = found + base
        methods.add(method)
        bounds = [max(pair) for pair in zip(bounds, lows, strict=True)]
    return _judged(bin_N, cost_N, slow_D, per_rank, METHODS[max(methods)], bounds)


def balance_padded(
    cost_N: npt.ArrayLike, *, num_ranks: int, per_rank: int, pp: int = 1, speed_D: npt.ArrayLike | None = None
) -> Balanced:
    """As `balance` where every bin has the same number of rows and each row one piece, whatever its length.

    Counts of bins differ by one at most, and by nothing where D * M divides N.
    """
    cost_N = np.ascontiguousarray(cost_N, np.int64)
    _check_mesh(num_ranks, per_rank, pp, None)
    _check_costs(cost_N)
    slow_D = _slowness(speed_D, num_ranks)
    cost = cost_N.astype(np.float64)
    way = solve_padded if len(cost) >= COMPILE_FROM else interpreted(solve_padded)
    bin_N = way(cost, slow_D, per_rank, float(pp - 1))
    largest = float(cost.max(initial=0.0))
    return _judged(bin_N, cost_N, slow_D, per_rank, "padded", [largest, largest])


def warm_up() -> None:
    """Compile, or load from the cache, what large steps call; seconds once on a new machine."""
    ones_N = np.ones(COMPILE_FROM, np.int64)
    packed_N = np.arange(COMPILE_FROM) % 4
    balance(ones_N, ones_N, packed_N, num_ranks=2, per_rank=2, capacity=COMPILE_FROM)
    balance_padded(ones_N, num_ranks=2, per_rank=2)


def _groups(
    packed_N: Int64Array, num_ranks: int, group: int, per_rank: int
) -> Iterator[tuple[int, Int64Array | slice]]:
    """First rank and pieces of each group that has any."""
    if group == num_ranks:
        yield from [(0, slice(None))] if len(packed_N) else []
        return
    group_N = packed_N // (group * per_rank)
    for k in range(num_ranks // group):
        index = np.flatnonzero(group_N == k)
        if len(index):
            yield k * group, index


def _judged(
    bin_N: Int64Array, cost_N: Int64Array, slow_D: Float64Array, per_rank: int, method: str, bounds: list[float]
) -> Balanced:  # fmt: skip
    """The placement with what it is worth; bounds are costs of a rank and of a microbatch."""
    if not cost_N.any():
        bounds = [0.0, 0.0]
    cost_B = np.bincount(bin_N, cost_N, len(slow_D) * per_rank)
    mean_B = float(cost_B.mean()) or 1.0
    time_D = cost_B.reshape(-1, per_rank).sum(axis=1) * slow_D
    mean_D = float(cost_B.sum() / (1.0 / slow_D).sum()) or 1.0
    rank_low = max(1.0, bounds[0] * float(slow_D.min()) / mean_D)
    return Balanced(
        bin_N=bin_N,
        method=method,
        rank_max_over_mean=float(time_D.max()) / mean_D,
        rank_bound=rank_low,
        microbatch_max_over_mean=float(cost_B.max()) / mean_B,
        microbatch_bound=max(1.0, bounds[1] / mean_B),
    )


def _slowness(speed_D: npt.ArrayLike | None, num_ranks: int) -> Float64Array:
    if speed_D is None:
        return np.ones(max(num_ranks, 0))
    speed = np.asarray(speed_D, np.float64)
    if speed.shape != (num_ranks,) or not (np.isfinite(speed) & (speed > 0)).all():
        raise ValueError(f"speed_D must be {num_ranks} finite numbers above 0, got {speed.tolist()}")
    slow_D: Float64Array = speed.max() / speed
    return slow_D


def _check_mesh(num_ranks: int, per_rank: int, pp: int, group_size: int | None) -> None:
    for name, value in (("num_ranks", num_ranks), ("per_rank", per_rank), ("pp", pp)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if num_ranks >= 1 << RANK_BITS:
        raise ValueError(f"num_ranks must be less than {1 << RANK_BITS}, got {num_ranks}")
    if group_size is not None and (group_size < 1 or num_ranks % group_size):
        raise ValueError(f"group_size must divide the {num_ranks} ranks, got {group_size}")


def _check_costs(cost_N: Int64Array) -> None:
    if len(cost_N) and (cost_N.min() < 0 or cost_N.sum(dtype=np.float64) >= 2.0**53):
        raise ValueError(f"cost_N must be at least 0 and sum to less than 2**53, got a least of {cost_N.min()}")


def _check_pieces(
    size_N: Int64Array, cost_N: Int64Array, packed_N: Int64Array, num_bins: int, capacity: int, max_docs: int
) -> None:
    if not len(size_N) == len(cost_N) == len(packed_N):
        raise ValueError(f"sizes, costs and bins must be as many, got {len(size_N)}, {len(cost_N)}, {len(packed_N)}")
    _check_costs(cost_N)
    if not len(size_N):
        return
    if size_N.min() < 1 or packed_N.min() < 0 or packed_N.max() >= num_bins:
        raise ValueError(
            f"size_N must be at least 1 and packed_N in [0, {num_bins}), got a least size of {size_N.min()} and bins "
            f"{packed_N.min()} .. {packed_N.max()}"
        )
    used_B, docs_B = np.bincount(packed_N, size_N, num_bins), np.bincount(packed_N, minlength=num_bins)
    if used_B.max() > capacity or docs_B.max() > max_docs:
        b = int(np.argmax((used_B > capacity) | (docs_B > max_docs)))
        raise ValueError(
            f"a packed bin must hold at most {capacity} in at most {max_docs} pieces, got {int(used_B[b])} in "
            f"{docs_B[b]} in bin {b}"
        )
