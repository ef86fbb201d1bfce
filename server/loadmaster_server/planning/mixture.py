"""Shares of the sources in integers.

# S = sources
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from loadmaster_flight.spec import Ramp

from .fair import ONE

_SHARE_SCALE = 1 << 32


def apportion(total: int, shares_S: Sequence[int]) -> list[int]:
    """Split `total` by `shares_S` (not all 0) by largest remainder, ties to the lower index.

    Exact for totals of any size and sign; the parts sum to `total`, and a share of 0 gets 0.
    """
    whole = sum(shares_S)
    parts_S, left_S = [], []
    for share in shares_S:
        part, left = divmod(total * share, whole)
        parts_S.append(part)
        left_S.append(left)
    by_remainder = sorted((-left, s) for s, left in enumerate(left_S) if left)
    for _, s in by_remainder[: total - sum(parts_S)]:
        parts_S[s] += 1
    return parts_S


def shares_at(weights_S: Sequence[Ramp | None], step: int) -> list[int]:
    """Evaluate curves (None: weight 0) to integers relative to the largest; a positive weight is at least 1."""
    value_S = [ramp.at(step) if ramp is not None else 0.0 for ramp in weights_S]
    largest = max(value_S)
    return [max(1, round(value / largest * _SHARE_SCALE)) if value > 0 else 0 for value in value_S]


def weights_of(shares_S: Sequence[int], is_live_S: Sequence[bool]) -> list[int]:
    """Normalise over the live sources to weights that sum to 2**30; all 0 when no live source has a share.

    A positive share keeps a weight of at least 1 (the largest weight gives way), so that no source starves silently.
    """
    return list(_weights_of(tuple(shares_S), tuple(is_live_S)))


@lru_cache(maxsize=32)
def _weights_of(shares_S: tuple[int, ...], is_live_S: tuple[bool, ...]) -> list[int]:
    live_S = [share if is_live else 0 for share, is_live in zip(shares_S, is_live_S, strict=True)]
    if not any(live_S):
        return [0] * len(live_S)
    weights_S = apportion(ONE, live_S)
    starved = [s for s, share in enumerate(live_S) if share and not weights_S[s]]
    for s in starved:
        weights_S[s] = 1
    weights_S[max(range(len(weights_S)), key=weights_S.__getitem__)] -= len(starved)
    return weights_S


def spread_credit(credit_S: Sequence[int], weights_S: Sequence[int]) -> list[int]:
    """Hand the credit of sources without weight to those with weight, by weight; the sum stays what it is."""
    idle = sum(credit for credit, weight in zip(credit_S, weights_S, strict=True) if not weight)
    kept_S = [credit if weight else 0 for credit, weight in zip(credit_S, weights_S, strict=True)]
    if not idle:
        return kept_S
    return [kept + part for kept, part in zip(kept_S, apportion(idle, weights_S), strict=True)]
