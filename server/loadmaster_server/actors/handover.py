"""Leases go from one live process to another only when the new owner is warm, or has had its time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from ..store import LeaseKind, LeaseRecord
from .partitioning import slots_before

Place = tuple[str, LeaseKind, str, int, int, int]
"""run, kind, stream, generation, source, slot"""


class Settled(NamedTuple):
    """What the leases are for now, and the leases to come that their owners-to-be are preparing for."""

    leases: list[LeaseRecord]
    pending: set[LeaseRecord]


def hand_over(
    target: Iterable[LeaseRecord],
    previous: Sequence[LeaseRecord],
    *,
    alive: Set[int],
    is_prepared: Callable[[LeaseRecord], bool],
) -> Settled:
    """Leases on the way to `target`: until an heir is prepared the owner keeps what it has, and the heir stands by.

    Args:
        target: Where leases should be in the end.
        previous: Where they are. Partitions may have been cut into fewer then.
        alive: Actors that still serve what they own, those too that are about to leave.
        is_prepared: Whether the actor of a lease to come may become its owner now. Asked only where a live owner has
            to give it up.

    Returns:
        The leases to write, each owner's standbys numbered from 1, and the owner leases that were put off.
    """
    owner_before = _owners(previous)
    cut = slots_before(lease for lease in previous if lease.kind is LeaseKind.PARTITION)
    standbys: defaultdict[Place, list[LeaseRecord]] = defaultdict(list)
    owners: list[LeaseRecord] = []
    for lease in sorted(target, key=lambda lease: lease.standby):
        if lease.standby:
            standbys[_place(lease)].append(lease)
        else:
            owners.append(lease)
    settled = Settled([], set())
    for lease in owners:
        before = owner_before.get(_place_before(lease, cut))
        waits = before is not None and before != lease.actor and before in alive and not is_prepared(lease)
        actors = [lease.actor, *(standby.actor for standby in standbys[_place(lease)])]
        if waits and before is not None:
            settled.pending.add(lease)
            actors = [before, *(actor for actor in actors if actor != before)]
        settled.leases.extend(replace(lease, actor=actor, standby=i) for i, actor in enumerate(actors))
    return settled


def _owners(leases: Iterable[LeaseRecord]) -> dict[Place, int]:
    return {_place(lease): lease.actor for lease in leases if not lease.standby}


def _place(lease: LeaseRecord) -> Place:
    return lease.run, lease.kind, lease.stream, lease.generation, lease.source, lease.slot


def _place_before(lease: LeaseRecord, cut: dict[tuple[str, int], int]) -> Place:
    """Where the lanes of a partition were when the source was cut into fewer; dp ranks stay as they are."""
    if lease.kind is not LeaseKind.PARTITION:
        return _place(lease)
    return _place(replace(lease, slot=lease.slot % cut.get((lease.run, lease.source), lease.slots)))
