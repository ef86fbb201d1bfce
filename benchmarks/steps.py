"""Steps to balance: documents of three length sets, packed as the planner's membership packs them.

# N = documents
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadmaster_server.planning.compiled import compiled

Int64Array = npt.NDArray[np.int64]

ALIGN = 16
OVERDRAW = 1.01
LENGTH_SETS = ("lognormal", "pareto", "bimodal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Documents of one step: tokens, sizes in units of ALIGN, packed bins."""

    tokens_N: Int64Array
    size_N: Int64Array
    bin_N: Int64Array
    num_bins: int
    capacity: int

    @property
    def occupancy(self) -> float:
        """Aligned tokens over the room of all bins."""
        return float(self.size_N.sum()) / (self.num_bins * self.capacity)


def lengths(name: str, num: int, rng: np.random.Generator) -> Int64Array:
    """Tokens of `num` documents: lognormal(700, 1.2), Pareto(1.15, 400), or 70 % about 300 and 30 % about 4,500."""
    if name == "lognormal":
        drawn = rng.lognormal(np.log(700), 1.2, num)
    elif name == "pareto":
        drawn = 400 * (1 + rng.pareto(1.15, num))
    else:
        long = rng.normal(4500, 1500, num).clip(500, 24_000)
        drawn = np.where(rng.random(num) < 0.7, rng.lognormal(np.log(300), 0.6, num), long)
    return drawn.clip(1, 1 << 20).astype(np.int64)


def cut(tokens_N: Int64Array, longest: int) -> Int64Array:
    """Documents as pieces of at most `longest` tokens."""
    whole_N, rest_N = tokens_N // longest, tokens_N % longest
    pieces = np.repeat(np.where(rest_N > 0, rest_N, longest), whole_N + (rest_N > 0))
    end_N = np.cumsum(whole_N + (rest_N > 0))
    is_last = np.zeros(len(pieces), bool)
    is_last[end_N - 1] = True
    return np.where(is_last, pieces, longest)


def steps(name: str, context: int, num_bins: int, num_steps: int, seed: int = 0) -> Iterator[Step]:
    """Steps in a row: what did not fit waits and is packed first, then best fit, the longest document first."""
    rng, queue = np.random.default_rng(seed), np.zeros(0, np.int64)
    for _ in range(num_steps):
        fresh = _draw(name, context, int(num_bins * context * OVERDRAW) - int(_aligned(queue).sum()), rng)
        tokens_N = np.concatenate([queue, fresh])
        size_N = _aligned(tokens_N) // ALIGN
        order_N = np.lexsort((-size_N, np.arange(len(tokens_N)) >= len(queue)))
        bin_N = np.empty(len(tokens_N), np.int64)
        bin_N[order_N] = best_fit(size_N[order_N], num_bins, context // ALIGN)
        is_in = bin_N >= 0
        queue = tokens_N[~is_in]
        yield Step(
            tokens_N=tokens_N[is_in],
            size_N=size_N[is_in],
            bin_N=bin_N[is_in],
            num_bins=num_bins,
            capacity=context // ALIGN,
        )


def _aligned(tokens_N: Int64Array) -> Int64Array:
    return -(-tokens_N // ALIGN) * ALIGN


def _draw(name: str, context: int, num_tokens: int, rng: np.random.Generator) -> Int64Array:
    """Pieces of documents until they hold `num_tokens`."""
    pieces = np.zeros(0, np.int64)
    while _aligned(pieces).sum() < num_tokens:
        pieces = np.concatenate([pieces, cut(lengths(name, 1000 + num_tokens // 1500, rng), context)])
    return pieces[: int(np.searchsorted(np.cumsum(_aligned(pieces)), num_tokens)) + 1]


@compiled
def best_fit(size_N: Int64Array, num_bins: int, capacity: int) -> Int64Array:
    """Bin of each piece, in the order given: the fullest with room, of those the last one touched; -1 if none has."""
    first_C, next_B = np.full(capacity + 1, -1, np.int64), np.arange(1, num_bins + 1)
    first_C[capacity], next_B[num_bins - 1] = 0, -1
    bin_N = np.full(len(size_N), -1, np.int64)
    for i in range(len(size_N)):
        free = size_N[i]
        while free <= capacity and first_C[free] < 0:
            free += 1
        if free <= capacity:
            b = first_C[free]
            first_C[free] = next_B[b]
            bin_N[i] = b
            next_B[b] = first_C[free - size_N[i]]
            first_C[free - size_N[i]] = b
    return bin_N
