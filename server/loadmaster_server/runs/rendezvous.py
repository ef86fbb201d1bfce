"""Where the ranks of one stream meet before they start together. In memory: ranks poll, so a restart fills it again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loadmaster_flight.wire.control import JoinRequest
from loadmaster_flight.wire.errors import ConflictError

ENTRY_LIFE_S = 10.0
"""A rank that did not ask again for this long is no longer here; ranks ask about once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A rank that is here. Times are monotonic seconds.

    Attributes:
        asked_s: When its newest request came in. That the request is held and looked at again does not renew it: only
            a rank that asks again is known to live.
        since_s: When the first request of this attempt (this nonce) came in.
    """

    request: JoinRequest
    mesh: dict[str, int]
    asked_s: float
    since_s: float


class Rendezvous:
    """Collects ranks that ask for the same start. Not thread-safe: the caller holds a lock.

    A rank may die while it waits here and come back as a new attempt. So being here is not enough: it is complete when
    each rank has asked since the newest attempt came.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._rivals: dict[int, Entry] = {}  # want something else than a rank that is here, but may be dead

    def enter(self, entry: Entry) -> bool:
        """A rank asks (again). Its newest attempt replaces an older one.

        Where it asks for something else than a rank that is here, it is let in when that one is silent for too long.

        Returns:
            Whether it is a new attempt: then the others must ask again.

        Raises:
            ConflictError: It asks for something else than a rank that has asked again since; names both.
        """
        self._drop_silent(entry.asked_s)
        rank = entry.request.rank
        before = self._entries.get(rank) or self._rivals.get(rank)
        if before is not None and before.request.nonce == entry.request.nonce:
            entry = replace(entry, since_s=before.since_s)
        elif before is not None and before.asked_s > entry.asked_s:
            return False
        self._entries.pop(rank, None)
        self._rivals.pop(rank, None)
        place = self._rivals if self._has_rival(entry) else self._entries
        place[rank] = entry
        return before is None or before.request.nonce != entry.request.nonce

    def waiting_for(self, now_s: float) -> list[int]:
        """The ranks that are missing, or that must ask again; empty when nobody is here."""
        self._drop_silent(now_s)
        return self._missing() or [rank for rank in sorted(self._entries) if self.must_ask_again(rank)]

    def must_ask_again(self, rank: int) -> bool:
        """Whether everybody is here, and this rank has to show that it still is."""
        entry = self._entries.get(rank)
        if entry is None or self._missing():
            return False
        return entry.asked_s < max(other.since_s for other in self._entries.values())

    def is_here(self, request: JoinRequest) -> bool:
        """Whether this attempt of the rank counts: it was not replaced, and does not wait for a rival to go."""
        entry = self._entries.get(request.rank)
        return entry is not None and entry.request.nonce == request.nonce

    def since_s(self, request: JoinRequest) -> float | None:
        """When this attempt of the rank came; None for one that does not count."""
        return self._entries[request.rank].since_s if self.is_here(request) else None

    def take(self) -> list[Entry]:
        """Everybody who is here, in order of rank; the rendezvous is empty afterwards."""
        entries = [self._entries[rank] for rank in sorted(self._entries)]
        self._entries.clear()
        self._rivals.clear()
        return entries

    def _missing(self) -> list[int]:
        sizes = [entry.request.world_size for entry in self._entries.values()]
        return [rank for rank in range(max(sizes, default=0)) if rank not in self._entries]

    def _has_rival(self, entry: Entry) -> bool:
        found = [(other, says) for other in self._entries.values() if (says := _disagreement(entry, other))]
        for other, says in found:
            if other.asked_s > entry.since_s:  # both live
                ranks = {"rank": entry.request.rank, "other_rank": other.request.rank}
                raise ConflictError(f"all ranks must start alike: {says}", **ranks)
        return bool(found)

    def _drop_silent(self, now_s: float) -> None:
        for entries in (self._entries, self._rivals):
            silent = [rank for rank, entry in entries.items() if now_s - entry.asked_s > ENTRY_LIFE_S]
            for rank in silent:
                del entries[rank]


def _disagreement(entry: Entry, other: Entry) -> str:
    """In what two ranks ask for different starts; empty where they agree."""
    mine, theirs = entry.request, other.request
    pairs = (
        ("has world_size {}", mine.world_size, theirs.world_size),
        ("resumes at step {}", mine.step, theirs.step),
        ("resumes from generation {}", mine.parent, theirs.parent),
        ("has the mesh {}", entry.mesh, other.mesh),
        ("has replay={}", mine.replay, theirs.replay),
        ("skips the steps {}", mine.skip, theirs.skip),
    )
    for says, here, there in pairs:
        if here != there:
            return f"rank {mine.rank} {says.format(here)} but rank {theirs.rank} {says.format(there)}"
    return ""
