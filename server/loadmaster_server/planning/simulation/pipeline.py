"""Exact event simulation of 1F1B pipelines, all ranks at once.

# D = dp ranks, M = microbatches of a rank, P = pipeline stages
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..cost import Float64Array, Int64Array

BACKWARD_OVER_FORWARD = 2.0


class Operation(NamedTuple):
    """A stage's forward or backward pass of one microbatch."""

    stage: int
    microbatch: int
    is_backward: bool


def bubble_limit(num_stages: int, num_microbatches: int) -> float:
    """Share of the time in which a pipeline of equal microbatches works: M / (M + P - 1).

    No strict limit for unequal ones: with the small ones first and last a pipeline fills and drains a little faster.
    """
    return num_microbatches / (num_microbatches + num_stages - 1)


def stage_order(stage: int, num_stages: int, num_microbatches: int) -> list[Operation]:
    """What one stage does, in order: P - 1 - stage forwards, then forward and backward in turn, then the backwards.

    The schedule of PipeDream-flush, "1F1B" (Narayanan et al. 2021, arXiv 2104.04473, section 2.2).
    """
    ahead = min(num_stages - 1 - stage, num_microbatches)
    order = [Operation(stage, m, False) for m in range(ahead)]
    for m in range(ahead, num_microbatches):
        order += [Operation(stage, m, False), Operation(stage, m - ahead, True)]
    return order + [Operation(stage, m, True) for m in range(num_microbatches - ahead, num_microbatches)]


@lru_cache(maxsize=256)
def schedule(num_stages: int, num_microbatches: int) -> tuple[Operation, ...]:
    """All operations, each after those that it waits for; which that are does not depend on how long they take."""
    orders = [stage_order(stage, num_stages, num_microbatches) for stage in range(num_stages)]
    at, done, found = [0] * num_stages, set[Operation](), list[Operation]()
    while len(found) < 2 * num_stages * num_microbatches:
        for stage, order in enumerate(orders):
            while at[stage] < len(order) and _is_ready(order[at[stage]], num_stages, done):
                found.append(order[at[stage]])
                done.add(order[at[stage]])
                at[stage] += 1
    return tuple(found)


def _is_ready(operation: Operation, num_stages: int, done: set[Operation]) -> bool:
    source = operation.stage + (1 if operation.is_backward else -1)
    return not 0 <= source < num_stages or operation._replace(stage=source) in done


def finish_times(
    cost_DM: npt.ArrayLike, num_stages: int = 1, *, spread_DM: Int64Array | None = None
) -> Float64Array:  # fmt: skip
    """When each rank's last stage operation ends, float64 (D,), in the unit of the costs.

    A microbatch of cost c takes c / P on every stage, a third of it forward. Transfers take no time.

    Args:
        cost_DM: Shape (D, M), cost of each microbatch in the order in which the rank runs them.
        spread_DM: Shape (D, M), int64: how many neighbouring ranks (aligned to that number) work on this microbatch
            together and so begin each of its operations together; 1: the rank alone, the default.

    Raises:
        ValueError: A cost is negative or not finite, or ranks of a group do not agree that they are one.
    """
    cost_DM = np.asarray(cost_DM, np.float64)
    _check(cost_DM, num_stages, spread_DM)
    num_ranks, num_microbatches = cost_DM.shape
    forward_MD = cost_DM.T / num_stages / (1.0 + BACKWARD_OVER_FORWARD)
    free_PD = np.zeros((num_stages, num_ranks))
    ended_2PMD = np.zeros((2, num_stages, num_microbatches, num_ranks))
    for stage, m, is_backward in schedule(num_stages, num_microbatches):
        start_D, source = free_PD[stage], stage + (1 if is_backward else -1)
        if 0 <= source < num_stages:
            start_D = np.maximum(start_D, ended_2PMD[int(is_backward), source, m])
        if spread_DM is not None:
            start_D = joint_starts(start_D, spread_DM[:, m])
        free_PD[stage] = start_D + forward_MD[m] * (BACKWARD_OVER_FORWARD if is_backward else 1.0)
        ended_2PMD[int(is_backward), stage, m] = free_PD[stage]
    return np.asarray(free_PD.max(axis=0), np.float64)


def joint_starts(start_D: Float64Array, spread_D: Int64Array) -> Float64Array:
    """Starts where a group of ranks begins when its last member can, float64 (D,)."""
    for size in np.unique(spread_D[spread_D > 1]).tolist():
        latest_D = np.repeat(start_D.reshape(-1, size).max(axis=1), size)
        start_D = np.where(spread_D == size, latest_D, start_D)
    return start_D


def step_time(cost_DM: npt.ArrayLike, num_stages: int = 1, *, spread_DM: Int64Array | None = None) -> float:
    """When the slowest rank is done: the gradients are summed over all of them then."""
    return float(finish_times(cost_DM, num_stages, spread_DM=spread_DM).max())


def _check(cost_DM: Float64Array, num_stages: int, spread_DM: Int64Array | None) -> None:
    if cost_DM.ndim != 2 or not cost_DM.size:
        raise ValueError(f"cost_DM must have the shape (ranks, microbatches), got {cost_DM.shape}")
    if num_stages < 1:
        raise ValueError(f"num_stages must be at least 1, got {num_stages}")
    if not (np.isfinite(cost_DM) & (cost_DM >= 0)).all():
        raise ValueError("cost_DM must be finite and at least 0")
    if spread_DM is not None:
        _check_groups(spread_DM, cost_DM.shape)


def _check_groups(spread_DM: Int64Array, shape: tuple[int, ...]) -> None:
    if spread_DM.shape != shape or spread_DM.min() < 1:
        raise ValueError(f"spread_DM must have the shape {shape} and be at least 1, got shape {spread_DM.shape}")
    for size in np.unique(spread_DM).tolist():
        if shape[0] % size:
            raise ValueError(f"spread_DM must divide the {shape[0]} ranks, got {size}")
        members = (spread_DM == size).reshape(-1, size, shape[1])
        if (members.any(axis=1) != members.all(axis=1)).any():
            raise ValueError(f"spread_DM must be {size} on all ranks of a group of {size} or on none")
