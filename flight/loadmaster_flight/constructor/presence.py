"""When each rank of a stream was last heard of."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from loadmaster_flight.wire.control import RankReport
from loadmaster_flight.wire.waiting import tell_rank, tell_ranks

MAX_WAITS = 1 << 16
"""Waits that are kept for the next report; while no planner takes them, the oldest are forgotten."""


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
        self._waits: dict[tuple[int, int], float] = {}
        self._hosts: dict[int, str] = {}

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

    def tell_waits(self, rank: int, waits: Iterable[tuple[int, float]]) -> None:
        """A rank says how long it waited for some steps: kept until they are reported, the newest ones."""
        for step, wait_s in waits:
            self._waits[rank, step] = wait_s
        while len(self._waits) > MAX_WAITS:
            del self._waits[next(iter(self._waits))]

    def tell_host(self, rank: int, host: str) -> None:
        """A rank says where it runs."""
        self._hosts[rank] = host

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

    def silences(self, *, now_s: float | None = None) -> dict[int, float]:
        """Seconds since each rank was last heard of."""
        now_s = time.monotonic() if now_s is None else now_s
        return {rank: now_s - seen_s for rank, seen_s in self._seen_s.items()}

    def report(self, steps: Mapping[int, int], *, now_s: float | None = None) -> RankReport:
        """What the planner is told of the ranks that `steps` has. Waits are told once."""
        now_s = time.monotonic() if now_s is None else now_s
        waits, self._waits = self._waits, {}
        hosts: dict[str, list[int]] = {}
        for rank, host in self._hosts.items():
            hosts.setdefault(host, []).append(rank)
        return RankReport(
            ranks=list(steps),
            acknowledged=list(steps.values()),
            seen_s=[round(now_s - self._seen_s[rank], 2) for rank in steps],
            moved_s=[round(now_s - self._moved_s[rank], 2) for rank in steps],
            left=sorted(self._left & steps.keys()),
            unheard=sorted(steps.keys() - self._heard),
            wait_rank=[rank for rank, _ in waits],
            wait_step=[step for _, step in waits],
            wait_s=[round(wait_s, 6) for wait_s in waits.values()],
            hosts=hosts,
        )
