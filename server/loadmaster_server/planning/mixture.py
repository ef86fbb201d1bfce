"""Shares of the sources in integers, and the fair choice of the next source.

# S = sources
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from loadmaster_flight.spec import Ramp
from loadmaster_flight.wire.errors import InternalError

ONE = 1 << 30
"""A weight of 1 in fixed point; also the credit that one unit (a token or a sample) costs."""
_SHARE_SCALE = 1 << 32
_KEY_BITS = 61


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


class FairChoice:
    """Worst-case fair weighted fair queueing (WF2Q, Bennett and Zhang 1996) over the sources with a weight.

    credit_s grows by w_s for every unit drawn from anyone and falls by 2**30 for a unit drawn from s. Among sources
    with credit >= 0 the one whose next piece would be paid first is drawn: least (2**30 n - credit) / w, ties to the
    lower index. Both instants are constants on the clock of drawn units until the source is drawn itself, so two heaps
    do: O(log S) a draw. Keys are exact: two fractions with denominators <= 2**30 differ by at least 2**-60.
    """

    def __init__(self, weights_S: Sequence[int], credit_S: Sequence[int]) -> None:
        self._weights_S = weights_S
        self._base_S = list(credit_S)
        self._clock = 0
        self._waiting = [(-(credit // weight), s) for s, (credit, weight) in self._paired() if weight]
        heapify(self._waiting)
        self._ready: list[tuple[int, int]] = []

    def _paired(self) -> Sequence[tuple[int, tuple[int, int]]]:
        return list(enumerate(zip(self._base_S, self._weights_S, strict=True)))

    def next_due(self) -> int | None:
        """Take out one source whose credit has reached 0 and whose next piece must be offered; None: there is none."""
        if self._waiting and self._waiting[0][0] <= self._clock:
            return heappop(self._waiting)[1]
        return None

    def offer(self, source: int, units: int) -> None:
        """State what the next piece of a due source costs."""
        key = ((units * ONE - self._base_S[source]) << _KEY_BITS) // self._weights_S[source]
        heappush(self._ready, (key, source))

    def take(self) -> int:
        """Take out the source to draw from."""
        if not self._ready:
            raise InternalError("no source has credit though credits sum to zero")
        return heappop(self._ready)[1]

    def charge(self, source: int, units: int) -> None:
        """Account for a piece drawn from `source`, which falls due again when its credit has recovered."""
        base = self._base_S[source] - units * ONE
        self._base_S[source] = base
        self._clock += units
        heappush(self._waiting, (-(base // self._weights_S[source]), source))

    def credit(self) -> list[int]:
        """Credits now, shape (S,)."""
        return [base + weight * self._clock for _, (base, weight) in self._paired()]
