"""When each rank of a stream was last heard of."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from loadmaster_flight.wire.control import RankReport
from loadmaster_flight.wire.waiting import tell_rank, tell_ranks


class Presence:
    """Notes signs of life of ranks. Not thread-safe: callers hold one lock. Times are monotonic seconds.

    Args:
        ranks: Global ranks.
        now_s: A rank of which nothing was heard yet counts from here on.
    """

    def __init__(self, ranks: Iterable[int], *, now_s: float | None = None) -> None:
        start_s = time.monotonic() if now_s is None else now_s
        self._seen_s = dict.fromkeys(ranks, start_s)
        self._moved_s = dict(self._seen_s)
        self._heard: set[int] = set()
        self._left: set[int] = set()

    def hear(self, rank: int, *, now_s: float | None = None) -> None:
        """A rank asked for something."""
        self._seen_s[rank] = time.monotonic() if now_s is None else now_s
        if rank not in self._heard:
            self._moved_s[rank] = self._seen_s[rank]
        self._heard.add(rank)
        self._left.discard(rank)

    def move(self, rank: int, *, now_s: float | None = None) -> None:
        """A rank has consumed a step that it had not before."""
        self._moved_s[rank] = time.monotonic() if now_s is None else now_s

    def leave(self, rank: int) -> None:
        """A rank closed its stream; when it asks again it is back."""
        self._left.add(rank)

    def tell(self, steps: Mapping[int, int], ranks: Iterable[int], *, now_s: float | None = None) -> str:
        """Some ranks for people, by what each of them has consumed."""
        now_s = time.monotonic() if now_s is None else now_s
        return tell_ranks(
            tell_rank(
                rank,
                step=steps[rank],
                seen_s=now_s - self._seen_s[rank],
                moved_s=now_s - self._moved_s[rank],
                has_left=rank in self._left,
            )
            for rank in ranks
        )

    def report(self, steps: Mapping[int, int], *, now_s: float | None = None) -> RankReport:
        """What the planner is told of the ranks that `steps` has."""
        now_s = time.monotonic() if now_s is None else now_s
        return RankReport(
            ranks=list(steps),
            acknowledged=list(steps.values()),
            seen_s=[round(now_s - self._seen_s[rank], 2) for rank in steps],
            moved_s=[round(now_s - self._moved_s[rank], 2) for rank in steps],
            left=sorted(self._left & steps.keys()),
            unheard=sorted(steps.keys() - self._heard),
        )
