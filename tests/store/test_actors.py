from __future__ import annotations

from collections.abc import Callable

import pytest

from loadmaster_flight.wire.control import LoaderRoute, RegisterRequest, Role
from loadmaster_server.store import (
    ActorRecord,
    Definition,
    GenerationKey,
    LeaseKind,
    LeaseRecord,
    NewGeneration,
    Store,
    StreamKey,
)


@pytest.fixture
def register(store: Store) -> Callable[..., ActorRecord]:
    """Registers a process by its port."""

    def one(port: int, role: Role = Role.LOADER, incarnation: str = "a") -> ActorRecord:
        address = f"grpc://127.0.0.1:{port}"
        return store.actors.register(RegisterRequest(role=role, address=address, incarnation=incarnation))

    return one


def _partition(slot: int, slots: int, actor: ActorRecord) -> LeaseRecord:
    return LeaseRecord(run="run", kind=LeaseKind.PARTITION, source=0, slot=slot, slots=slots, actor=actor.number)


def test_register_when_repeated_then_same_record(store: Store, register: Callable[..., ActorRecord]) -> None:
    assert register(1) == register(1)
    assert len(store.actors.all()) == 1


def test_register_when_another_life_has_the_address_then_the_old_one_is_gone(
    store: Store, register: Callable[..., ActorRecord]
) -> None:
    old, new = register(1), register(1, incarnation="b")
    assert new.number > old.number
    assert store.actors.all() == [new]


def test_register_when_one_was_removed_then_its_number_is_not_given_again(
    store: Store, register: Callable[..., ActorRecord]
) -> None:
    last = register(1)
    store.actors.remove([last.number])
    assert register(2).number > last.number


def test_replace_leases_when_unchanged_then_false(
    store: Store, register: Callable[..., ActorRecord], make_definition: Callable[..., Definition]
) -> None:
    store.runs.create(make_definition())
    first, second = register(1), register(2)
    leases = [_partition(0, 2, first), _partition(1, 2, second)]
    assert store.actors.replace_leases(leases)
    assert not store.actors.replace_leases(leases[::-1])
    assert store.actors.partition_owners("run", 0) == {0: (2, first.address), 1: (2, second.address)}
    assert store.actors.routes("run") == [
        LoaderRoute(address=first.address, partitions=[[0, 0, 2]]),
        LoaderRoute(address=second.address, partitions=[[0, 1, 2]]),
    ]


def test_remove_when_actor_has_leases_then_they_go_along(
    store: Store, register: Callable[..., ActorRecord], make_definition: Callable[..., Definition]
) -> None:
    store.runs.create(make_definition())
    first = register(1)
    store.actors.replace_leases([_partition(0, 1, first)])
    store.actors.remove([first.number])
    assert store.actors.partition_owners("run", 0) == {}


def test_replace_leases_when_owner_is_gone_then_left_out(
    store: Store, register: Callable[..., ActorRecord], make_definition: Callable[..., Definition]
) -> None:
    store.runs.create(make_definition())
    first, second = register(1), register(2)
    store.actors.remove([second.number])
    store.actors.replace_leases([_partition(0, 2, first), _partition(1, 2, second)])
    assert store.actors.partition_owners("run", 0) == {0: (2, first.address)}


def test_constructor_of_when_leased_then_its_address(
    store: Store,
    register: Callable[..., ActorRecord],
    make_definition: Callable[..., Definition],
    make_new: Callable[..., NewGeneration],
) -> None:
    store.runs.create(make_definition())
    generation = store.generations.open(StreamKey(run="run", stream="train"), make_new())
    owner = register(3, role=Role.CONSTRUCTOR)
    key: GenerationKey = generation.key
    lease = LeaseRecord(run="run", kind=LeaseKind.DP, stream="train", generation=0, slot=1, slots=2, actor=owner.number)
    store.actors.replace_leases([lease])
    assert store.actors.constructor_of(key, 1) == owner.address
    assert store.actors.constructor_of(key, 0) is None
