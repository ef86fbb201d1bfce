"""How others share out a step: in order, in a snake, and with the differencing method that RL trainers use.

# N = documents, D = parts
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]


def snake(cost_N: Int64Array, num_ranks: int, per_rank: int) -> Int64Array:
    """Bins by cost: the costliest documents one to each bin, the next ones in the opposite order. No token cap."""
    num_bins = num_ranks * per_rank
    place_N = np.arange(len(cost_N)) % (2 * num_bins)
    bin_N = np.empty(len(cost_N), np.int64)
    bin_N[np.argsort(-cost_N, kind="stable")] = np.minimum(place_N, 2 * num_bins - 1 - place_N)
    return bin_N % num_ranks * per_rank + bin_N // num_ranks


def karmarkar_karp(cost_N: Int64Array, num_ranks: int, per_rank: int) -> Int64Array:
    """Ranks by differencing with equal counts, then microbatches of each rank by differencing. No token cap.

    The way of verl's `seqlen_balancing`: `karmarkar_karp(equal_size=True)` over the data-parallel ranks, then
    `rearrange_micro_batches`, which partitions without equal sizes.
    """
    bin_N = np.empty(len(cost_N), np.int64)
    for rank, index in enumerate(partition(cost_N, num_ranks, equal_size=True)):
        for m, inner in enumerate(partition(cost_N[index], per_rank, equal_size=False)):
            bin_N[index[inner]] = rank * per_rank + m
    return bin_N


def partition(cost_N: Int64Array, num_parts: int, *, equal_size: bool) -> list[Int64Array]:
    """Largest differencing method (Karmarkar and Karp 1982): merge the two states of widest spread, light onto heavy.

    A state is `num_parts` sets in order of their sum, the heaviest first. With equal sizes each state starts with
    `num_parts` documents, one a set (a count that does not divide is filled up with documents of no cost).
    """
    order = np.argsort(cost_N, kind="stable").tolist()
    states = []
    if equal_size:
        order = [-1] * (-len(order) % num_parts) + order
        for k in range(0, len(order), num_parts):
            group = order[k : k + num_parts]
            states.append(_state([(int(cost_N[i]) if i >= 0 else 0, (i,)) for i in group], k))
    else:
        states = [_state([(int(cost_N[i]), (i,))] + [(0, ())] * (num_parts - 1), i) for i in order]
    heapq.heapify(states)
    while len(states) > 1:
        _, number, wide = heapq.heappop(states)
        _, _, other = heapq.heappop(states)
        pairs = zip(wide, reversed(other), strict=True)
        heapq.heappush(states, _state([(a[0] + b[0], (a[1], b[1])) for a, b in pairs], number))
    return [np.array([i for i in _flat(items) if i >= 0], np.int64) for _, items in states[0][2]]


def _state(sets: list[tuple[int, tuple]], number: int) -> tuple[int, int, list[tuple[int, tuple]]]:
    sets.sort(key=lambda entry: -entry[0])
    return sets[-1][0] - sets[0][0], number, sets


def _flat(items: tuple) -> list[int]:
    """Documents of nested pairs: merging keeps pairs instead of copying lists."""
    found, stack = [], [items]
    while stack:
        entry = stack.pop()
        if isinstance(entry, tuple):
            stack.extend(entry)
        else:
            found.append(entry)
    return found
