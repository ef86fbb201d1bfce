"""A process as this planner sees it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from loadmaster_flight.wire.control import ActorView, HeartbeatRequest, Lease, Role

from ..store import ActorRecord, GenerationKey, LeaseKind, LeaseRecord
from .desired import Duties

DpRank = tuple[GenerationKey, int]


@dataclass(slots=True, kw_only=True)
class Life:
    """A process as this planner sees it.

    Attributes:
        seen_s: When it was last heard of, monotonic seconds.
        heard_s: The same by the clock that leases lapse by.
        duties: What its last heartbeat was answered with.
        warm: Standby leases of which it has the next steps in memory.
        ready: Of what it serves, the dp ranks of generations whose next step is built.
        is_leaving: It is about to end, and waits until others have its leases.
    """

    record: ActorRecord
    seen_s: float
    heard_s: float
    stats: dict[str, float] = field(default_factory=dict)
    duties: Duties = field(default_factory=Duties)
    warm: frozenset[Lease] = frozenset()
    ready: frozenset[DpRank] = frozenset()
    is_leaving: bool = False

    def hear(self, request: HeartbeatRequest, heard_s: float) -> bool:
        """Take a heartbeat in; True when it says something that leases may depend on."""
        self.seen_s, self.heard_s, self.stats = time.monotonic(), heard_s, request.stats
        before = (self.warm, self.ready, self.is_leaving)
        self.warm, self.ready = frozenset(request.warm), frozenset(self._ready(request))
        self.is_leaving |= request.is_leaving
        return (self.warm, self.ready, self.is_leaving) != before

    def is_prepared(self, lease: LeaseRecord) -> bool:
        """Whether it could own this now without anybody having to wait for it."""
        if lease.kind is LeaseKind.DP:
            key = GenerationKey(run=lease.run, stream=lease.stream, generation=lease.generation)
            return (key, lease.slot) in self.ready
        return (
            Lease(run=lease.run, source=lease.source, partition=lease.slot, partitions=lease.slots, is_standby=True)
            in self.warm
        )

    def view(self, now_s: float) -> ActorView:
        """For people."""
        record = self.record
        return ActorView(
            actor_id=record.actor_id,
            role=Role(record.role),
            address=record.address,
            pid=record.pid,
            heartbeat_age_s=max(0.0, round(now_s - self.seen_s, 3)),
            stats=self.stats,
        )

    def _ready(self, request: HeartbeatRequest) -> Iterable[DpRank]:
        ready = {
            GenerationKey(run=word.run, stream=word.stream, generation=word.generation)
            for word in request.acknowledged
            if word.is_ready
        }
        for a in self.duties.assignments:
            key = GenerationKey(run=a.run, stream=a.stream, generation=a.generation)
            if key in ready:
                yield from ((key, dp_rank) for dp_rank in a.dp_of_rank)
