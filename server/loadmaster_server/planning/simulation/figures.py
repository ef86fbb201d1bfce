"""What a simulated step is worth: times, evenness with lower bounds, how full it is.

# N = pieces, D = dp ranks, M = microbatches of a rank
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..balance.bounds import densities, lower_bound
from ..cost import Float64Array, Int64Array
from .loaders import LEFT, cost_grid, fixed_count, next_fit
from .pipeline import bubble_limit, finish_times


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Axes that a step time depends on."""

    dp: int
    pp: int = 1
    cp: int = 1
    tp: int = 1

    @property
    def world_size(self) -> int:
        return self.dp * self.pp * self.cp * self.tp


@dataclass(frozen=True, slots=True, kw_only=True)
class Evenness:
    """Costliest over mean, and the bound below which no placement of these pieces can be; of ranks and microbatches."""

    rank_max_over_mean: float
    rank_bound: float
    microbatch_max_over_mean: float
    microbatch_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time of a step in FLOPs of one device, and the share of all devices' time that is useful."""

    time: float
    useful: float

    @property
    def efficiency(self) -> float:
        return self.useful / self.time if self.time else 0.0


def timing_of(cost_DM: Float64Array, mesh: Mesh) -> Timing:
    """A step under 1F1B; cp and tp divide the work of a stage evenly."""
    shared = mesh.cp * mesh.tp
    useful = float(cost_DM.sum()) / (mesh.dp * mesh.pp * shared)
    return Timing(time=float(finish_times(cost_DM, mesh.pp).max()) / shared, useful=useful)


def limit_of(mesh: Mesh, per_rank: int) -> float:
    """Efficiency of equal microbatches: what the pipeline's bubble leaves."""
    return bubble_limit(mesh.pp, per_rank)


def evenness_of(size_N: Int64Array, cost_N: Float64Array, cost_DM: Float64Array, capacity: int) -> Evenness:
    """Ratios of a placement and their lower bounds.

    Args:
        size_N: Shape (N,), int64, in the unit of `capacity`, the room of a microbatch.
        cost_N: Shape (N,).
        cost_DM: Shape (D, M), the same costs by microbatch.
    """
    num_ranks, per_rank = cost_DM.shape
    rank_mean, mean = float(cost_DM.sum()) / num_ranks or 1.0, float(cost_DM.mean()) or 1.0
    rank_low, low = 0.0, 0.0
    if len(cost_N):
        order_N, classes = np.argsort(-cost_N, kind="stable"), densities(size_N, cost_N)
        rank_low = lower_bound(size_N, cost_N, order_N, classes, num_ranks, per_rank * capacity)
        low = lower_bound(size_N, cost_N, order_N, classes, num_ranks * per_rank, capacity)
    return Evenness(
        rank_max_over_mean=float(cost_DM.sum(axis=1).max()) / rank_mean,
        rank_bound=max(1.0, rank_low / rank_mean),
        microbatch_max_over_mean=float(cost_DM.max()) / mean,
        microbatch_bound=max(1.0, low / mean),
    )


class TokenBudget:
    """A next-fit loader over many steps: what a step does not take comes first in the next one."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._size_N, self._cost_N = np.zeros(0, np.int64), np.zeros(0, np.float64)

    def read(self, size_N: Int64Array, cost_N: Float64Array, num_bins: int, capacity: int) -> list[Timing]:
        """Read more samples; the steps that are full now."""
        self._size_N = np.concatenate([np.minimum(self._size_N, capacity), size_N])
        self._cost_N = np.concatenate([self._cost_N, cost_N])
        timings: list[Timing] = []
        while True:
            bin_N = next_fit(self._size_N, num_bins, capacity)
            if not (bin_N == LEFT).any():
                return timings
            grid_DM = cost_grid(self._cost_N, bin_N, self._mesh.dp, num_bins // self._mesh.dp)
            timings.append(timing_of(grid_DM, self._mesh))
            self._size_N, self._cost_N = self._size_N[bin_N == LEFT], self._cost_N[bin_N == LEFT]


def naive_timing(cost_N: Float64Array, mesh: Mesh, num_bins: int) -> Timing:
    """A step of a loader that gives every microbatch the same number of samples."""
    bin_N = fixed_count(len(cost_N), num_bins)
    return timing_of(cost_grid(cost_N, bin_N, mesh.dp, num_bins // mesh.dp), mesh)
