"""Where the ranks of one stream meet before they start together. In memory: ranks poll, so a restart fills it again."""

from __future__ import annotations

from dataclasses import dataclass

from loadmaster_flight.wire.control import JoinRequest
from loadmaster_flight.wire.errors import ConflictError

ENTRY_LIFE_S = 10.0
"""A rank that did not ask again for this long is no longer here; ranks ask about once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A rank that is here, and when it asked last (monotonic seconds)."""

    request: JoinRequest
    mesh: dict[str, int]
    seen_s: float


class Rendezvous:
    """Collects ranks that ask for the same start. Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def enter(self, entry: Entry) -> None:
        """A rank asks (again). Its newest attempt replaces an older one.

        Raises:
            ConflictError: It asks for something else than a rank that is here; names both.
        """
        self._drop_silent(entry.seen_s)
        self._entries.pop(entry.request.rank, None)
        for other in self._entries.values():
            _check_agree(entry, other)
        self._entries[entry.request.rank] = entry

    def waiting_for(self, now_s: float) -> list[int]:
        """The ranks that are missing; empty when nobody is here."""
        self._drop_silent(now_s)
        sizes = [entry.request.world_size for entry in self._entries.values()]
        return [rank for rank in range(max(sizes, default=0)) if rank not in self._entries]

    def take(self) -> list[Entry]:
        """Everybody who is here, in order of rank; the rendezvous is empty afterwards."""
        entries = [self._entries[rank] for rank in sorted(self._entries)]
        self._entries.clear()
        return entries

    def _drop_silent(self, now_s: float) -> None:
        silent = [rank for rank, entry in self._entries.items() if now_s - entry.seen_s > ENTRY_LIFE_S]
        for rank in silent:
            del self._entries[rank]


def _check_agree(entry: Entry, other: Entry) -> None:
    mine, theirs = entry.request, other.request
    pairs = (
        ("has world_size {}", mine.world_size, theirs.world_size),
        ("resumes at step {}", mine.step, theirs.step),
        ("resumes from generation {}", mine.parent, theirs.parent),
        ("has the mesh {}", entry.mesh, other.mesh),
    )
    for says, here, there in pairs:
        if here != there:
            ranks = f"rank {mine.rank} {says.format(here)} but rank {theirs.rank} {says.format(there)}"
            raise ConflictError(f"all ranks must start alike: {ranks}", rank=mine.rank, other_rank=theirs.rank)
