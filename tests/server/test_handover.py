"""Leases on their way from one live process to another."""

from __future__ import annotations

from dataclasses import replace

from loadmaster_server.actors.handover import hand_over
from loadmaster_server.store import LeaseKind, LeaseRecord

OWNER = LeaseRecord(run="run", kind=LeaseKind.PARTITION, source=0, slot=0, slots=2, actor=1)
RANK = LeaseRecord(run="run", kind=LeaseKind.DP, stream="train", generation=3, slot=1, slots=2, actor=1)


def _heir(lease: LeaseRecord, actor: int = 2) -> LeaseRecord:
    return replace(lease, actor=actor)


def test_lease_when_the_heir_is_not_prepared_then_the_owner_keeps_it_and_the_heir_stands_by() -> None:
    for lease in (OWNER, RANK):
        settled = hand_over([_heir(lease)], [lease], alive={1, 2}, is_prepared=lambda _: False)
        assert settled.leases == [lease, replace(lease, actor=2, standby=1)]
        assert settled.pending == {_heir(lease)}


def test_lease_when_the_heir_is_prepared_then_it_is_the_owner() -> None:
    settled = hand_over([_heir(OWNER)], [OWNER], alive={1, 2}, is_prepared=lambda lease: lease.actor == 2)
    assert settled == ([_heir(OWNER)], set())


def test_lease_when_the_owner_is_gone_then_nobody_is_waited_for() -> None:
    settled = hand_over([_heir(OWNER)], [OWNER], alive={2}, is_prepared=lambda _: False)
    assert settled == ([_heir(OWNER)], set())


def test_lease_when_nothing_was_owned_before_then_it_is_as_placed() -> None:
    target = [_heir(OWNER), replace(OWNER, actor=3, standby=1)]
    assert hand_over(target, [], alive={2, 3}, is_prepared=lambda _: False) == (target, set())


def test_lease_when_a_shadow_waits_to_own_then_the_other_shadows_come_after_it() -> None:
    target = [_heir(OWNER), replace(OWNER, actor=1, standby=1), replace(OWNER, actor=3, standby=2)]
    settled = hand_over(target, [OWNER], alive={1, 2, 3}, is_prepared=lambda _: False)
    assert [(lease.actor, lease.standby) for lease in settled.leases] == [(1, 0), (2, 1), (3, 2)]


def test_lease_when_partitions_were_split_then_the_owner_of_the_whole_keeps_the_part() -> None:
    target = [replace(OWNER, slot=k, slots=4, actor=actor) for k, actor in enumerate((1, 9, 5, 9))]
    previous = [OWNER, replace(OWNER, slot=1, actor=9)]
    settled = hand_over(target, previous, alive={1, 5, 9}, is_prepared=lambda _: False)
    assert [(lease.slot, lease.actor, lease.standby) for lease in settled.leases] == [
        (0, 1, 0),
        (1, 9, 0),
        (2, 1, 0),
        (2, 5, 1),
        (3, 9, 0),
    ]
    assert settled.pending == {target[2]}
