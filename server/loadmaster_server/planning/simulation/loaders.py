"""Loaders to compare with: how those that do not look at cost place the samples that they read.

# N = samples, B = bins, K = images, W = encoder consumers
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from ..cost import Float64Array, Int64Array

LEFT = -1


class Against(StrEnum):
    """naive: the same number of samples in every microbatch, in the order read; it does not look at lengths, so a
    microbatch may hold more than C tokens. token_budget: next fit, a microbatch is closed when the next sample would
    not fit."""

    NAIVE = "naive"
    TOKEN_BUDGET = "token_budget"


def fixed_count(num_samples: int, num_bins: int) -> Int64Array:
    """Equal counts (by one at most) in the order read, int64 (N,)."""
    return np.asarray(np.arange(num_samples) * num_bins // max(num_samples, 1), np.int64)


def next_fit(size_N: npt.ArrayLike, num_bins: int, capacity: int) -> Int64Array:
    """Fill one bin after the other in the order read, int64 (N,); LEFT from the first sample on that finds no bin.

    Raises:
        ValueError: A sample is larger than a bin.
    """
    size_N = np.asarray(size_N, np.int64)
    if len(size_N) and size_N.max() > capacity:
        raise ValueError(f"a sample must be at most {capacity}, got {size_N.max()}")
    end_N = np.cumsum(size_N)
    bin_N, first = np.full(len(size_N), LEFT, np.int64), 0
    for b in range(num_bins):
        before = int(end_N[first - 1]) if first else 0
        stop = int(np.searchsorted(end_N, before + capacity, side="right"))
        bin_N[first:stop] = b
        first = stop
    return bin_N


def as_read(num_samples: int, seed: int) -> Int64Array:
    """An order in which a loader that shuffles well would read the samples, int64 (N,)."""
    return np.asarray(np.random.default_rng(seed).permutation(num_samples), np.int64)


def cost_grid(cost_N: npt.ArrayLike, bin_N: Int64Array, num_ranks: int, per_rank: int) -> Float64Array:
    """Cost of each microbatch, float64 (D, M); samples that are LEFT do not count."""
    is_in_N, cost_N = bin_N != LEFT, np.asarray(cost_N, np.float64)
    cost_B = np.bincount(bin_N[is_in_N], cost_N[is_in_N], num_ranks * per_rank)
    return np.asarray(cost_B.reshape(num_ranks, per_rank), np.float64)


def encoder_time(cost_K: npt.ArrayLike, consumer_K: Int64Array, num_consumers: int) -> float:
    """When the last consumer has encoded its images, forward and backward, in the unit of the costs."""
    return float(np.bincount(consumer_K, np.asarray(cost_K, np.float64), num_consumers).max(initial=0.0))


def images_at_home(rank_K: Int64Array, per_rank: int) -> Int64Array:
    """Images stay on the dp rank of their sample; its `per_rank` consumers take them in turn. int64 (K,)."""
    order_K = np.argsort(rank_K, kind="stable")
    sorted_K = rank_K[order_K]
    turn_K = np.empty(len(rank_K), np.int64)
    turn_K[order_K] = np.arange(len(rank_K)) - np.searchsorted(sorted_K, sorted_K)
    return np.asarray(rank_K * per_rank + turn_K % per_rank, np.int64)
