"""Registration, heartbeats, leases and their expiry over real HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from loadmaster.cli.actors import list_actors
from loadmaster_flight.wire.control import (
    CreateRunRequest,
    HeartbeatReply,
    HeartbeatRequest,
    Lease,
    LoaderRoute,
    RegisterReply,
    RegisterRequest,
    Role,
    RunView,
    SuspectReply,
    SuspectReport,
)
from loadmaster_flight.wire.errors import BadRequestError, NotFoundError
from loadmaster_server.store import GenerationKey
from support.synthetic import Cluster, FakeLoader, wait_for

MakeRun = Callable[..., CreateRunRequest]


def _register(cluster: Cluster, *, address: str = "grpc://127.0.0.1:9001", incarnation: str = "a") -> RegisterReply:
    request = RegisterRequest(role=Role.LOADER, address=address, incarnation=incarnation)
    return cluster.client.post("/actors", request, RegisterReply)


def _beat(cluster: Cluster, actor_id: str, incarnation: str = "a") -> HeartbeatReply:
    return cluster.client.post(
        f"/actors/{actor_id}/heartbeat", HeartbeatRequest(incarnation=incarnation), HeartbeatReply
    )


def test_register_when_repeated_then_same_name_and_key(cluster: Cluster) -> None:
    first, again = _register(cluster), _register(cluster)
    assert first == again
    assert bytes.fromhex(first.ticket_key_hex) == cluster.server.planner.store.ticket_key
    assert (first.heartbeat_s, first.lease_s) == (0.05, 1.0)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("grpc://10.0.0.1:80", "is plain text, which goes to loopback addresses alone"),
        ("grpc://127.0.0.1", "must have a port"),
        ("grpc+tls://10.0.0.1:80?to=x", "only .name= may come after host and port"),
        ("http://127.0.0.1:80", "address must look like grpc"),
        ("grpc://[::1", "address must look like grpc"),
        ("grpc://127.0.0.1:1/\ud800", "only .name= may come after"),
        ("grpc://127.0.0.1:" + "9" * 300, "address must have at most 255"),
    ],
)
def test_register_when_address_is_wrong_then_bad_request(cluster: Cluster, address: str, says: str) -> None:
    with pytest.raises(BadRequestError, match=says):
        _register(cluster, address=address)


def test_heartbeat_when_unknown_then_not_found(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match="register again"):
        _beat(cluster, "loader-99")


def test_heartbeat_when_another_incarnation_then_not_found(cluster: Cluster) -> None:
    actor_id = _register(cluster).actor_id
    with pytest.raises(NotFoundError, match="another incarnation"):
        _beat(cluster, actor_id, incarnation="b")


def test_heartbeat_when_silent_for_a_lease_then_not_found(cluster: Cluster) -> None:
    actor_id = _register(cluster).actor_id
    _beat(cluster, actor_id)
    store = cluster.server.planner.store
    wait_for(lambda: not store.actors.all(), what="the silent actor to be given up")
    with pytest.raises(NotFoundError):
        _beat(cluster, actor_id)


def test_actors_when_listed_then_as_their_last_heartbeat_says(cluster: Cluster) -> None:
    for port in (9002, 9001):
        request = RegisterRequest(
            role=Role.LOADER, address=f"grpc://127.0.0.1:{port}", incarnation=str(port), pid=port - 9000
        )
        actor_id = cluster.client.post("/actors", request, RegisterReply).actor_id
    beat = HeartbeatRequest(incarnation="9001", stats={"rows_measured": 7.0})
    cluster.client.post(f"/actors/{actor_id}/heartbeat", beat, HeartbeatReply)
    silent, heard = list_actors(cluster.client)
    assert (silent.address, silent.pid, silent.stats) == ("grpc://127.0.0.1:9002", 2, {})
    assert (heard.actor_id, heard.role, heard.pid, heard.stats) == (actor_id, Role.LOADER, 1, {"rows_measured": 7})
    assert 0 <= heard.heartbeat_age_s <= silent.heartbeat_age_s


def test_actors_when_one_leaves_then_it_is_not_listed(cluster: Cluster) -> None:
    cluster.client.request("DELETE", f"/actors/{_register(cluster).actor_id}")
    assert list_actors(cluster.client) == []


def test_leave_when_repeated_then_fine(cluster: Cluster) -> None:
    actor_id = _register(cluster).actor_id
    for _ in range(2):
        cluster.client.request("DELETE", f"/actors/{actor_id}")
    with pytest.raises(NotFoundError):
        _beat(cluster, actor_id)


def test_leases_when_loaders_come_then_spread_by_share(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    loaders = [cluster.loader() for _ in range(4)]

    def held() -> list[list[tuple[int, int, int]]]:
        by_loader = [loader.leases for loader in loaders]
        return sorted([(lease.source, lease.partition, lease.partitions) for lease in leases] for leases in by_loader)

    wait_for(lambda: held() == [[(0, 0, 3)], [(0, 1, 3)], [(0, 2, 3)], [(1, 0, 1)]], what="one lease a loader")


def test_leases_when_a_loader_dies_then_the_others_take_over(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    stays, dies = cluster.loader(), cluster.loader()
    wait_for(lambda: dies.leases and stays.leases, what="both to have leases")
    dies.kill()
    whole = [Lease(run="run", source=source, partition=0, partitions=1) for source in (0, 1)]
    wait_for(lambda: sorted(stays.leases, key=lambda lease: lease.source) == whole, what="the leases to move")


def test_leases_when_a_loader_leaves_then_free_before_the_lease_ends(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    cluster = make_cluster(lease_s=3600.0)
    cluster.client.post("/runs", make_run(), RunView)
    stays, leaves = cluster.loader(), cluster.loader()
    wait_for(lambda: leaves.leases, what="a lease")
    leaves.link.close(leave=True)
    wait_for(lambda: {lease.partitions for lease in stays.leases} == {1}, what="the leases to move")


def test_assignments_when_two_constructors_then_contiguous_blocks_with_routes(
    cluster: Cluster, make_run: MakeRun
) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    loader = cluster.loader()
    constructors = [cluster.constructor() for _ in range(2)]
    cluster.open(8, mesh={"dp": 4, "tp": 2})
    wait_for(lambda: all(c.assignments and c.assignments[0].loaders for c in constructors), what="assignments")
    first, second = (c.assignments[0] for c in constructors)
    assert (first.ranks, first.dp_of_rank) == ([0, 1, 2, 3], [0, 0, 1, 1])
    assert (second.ranks, second.dp_of_rank) == ([4, 5, 6, 7], [2, 2, 3, 3])
    assert first.mesh == {"pp": 1, "dp": 4, "cp": 1, "tp": 2}
    assert list(first.mesh) == ["pp", "dp", "cp", "tp"]
    assert (first.generation, first.first_step, first.build_ahead) == (0, 0, 2)
    assert first.loaders == [LoaderRoute(address=loader.service.address, partitions=[[0, 0, 1], [1, 0, 1]])]


def test_assignments_when_a_constructor_dies_then_its_ranks_move(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    stays, dies = cluster.constructor(), cluster.constructor()
    cluster.open(2)
    wait_for(lambda: dies.assignments, what="an assignment")
    dies.kill()
    wait_for(lambda: stays.assignments and stays.assignments[0].ranks == [0, 1], what="the ranks to move")


def _owned(loader: FakeLoader) -> list[tuple[int, int, int]]:
    return [(lease.source, lease.partition, lease.partitions) for lease in loader.leases if not lease.is_standby]


def test_suspect_when_its_port_refuses_then_given_up_at_once_and_its_leases_are_the_others(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    cluster = make_cluster(lease_s=3600.0)
    cluster.client.post("/runs", make_run(), RunView)
    stays, dies = cluster.loader(), cluster.loader()
    wait_for(lambda: dies.leases and stays.leases, what="both to have leases")
    there = SuspectReport(address=dies.service.address, by="grpc://127.0.0.1:1")
    assert not cluster.client.post("/actors/suspects", there, SuspectReply).is_gone
    dies.kill()
    assert cluster.client.post("/actors/suspects", there, SuspectReply).is_gone
    routes = cluster.server.planner.store.actors.routes("run")
    assert [route.address for route in routes] == [stays.service.address]
    assert cluster.client.post("/actors/suspects", there, SuspectReply).is_gone


def test_silent_when_its_port_refuses_then_given_up_long_before_the_lease_ends(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    cluster = make_cluster(lease_s=3600.0)
    cluster.client.post("/runs", make_run(), RunView)
    stays, dies = cluster.loader(), cluster.loader()
    wait_for(lambda: dies.leases and stays.leases, what="both to have leases")
    dies.kill()
    wait_for(lambda: [actor.address for actor in list_actors(cluster.client)] == [stays.service.address], what="news")


def test_lease_when_its_owner_leaves_then_it_goes_over_once_the_heir_is_warm(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    cluster = make_cluster(lease_s=3600.0)
    cluster.client.post("/runs", make_run(), RunView)
    leaves = cluster.loader()
    constructor = cluster.constructor()
    cluster.open(1)
    wait_for(lambda: len(_owned(leaves)) == 2, what="the leases")
    heir = cluster.loader(is_warm=False)
    wait_for(lambda: any(lease.is_standby for lease in heir.leases), what="the heir to stand by")
    assert _owned(heir) == []
    draining = threading.Thread(target=leaves.link.drain, args=(30.0,))
    draining.start()
    wait_for(lambda: len(heir.leases) >= 2 and all(x.is_standby for x in heir.leases), what="the heir of all")
    wait_for(
        lambda: sum(len(route.partitions) for route in constructor.assignments[0].shadows) == len(heir.leases),
        what="the constructor to hear of all",
    )
    (route,) = constructor.assignments[0].shadows
    assert route.address == heir.service.address
    assert sorted(route.partitions) == sorted([x.source, x.partition, x.partitions] for x in heir.leases)
    assert draining.is_alive()
    heir.is_warm = True
    draining.join(30.0)
    assert not draining.is_alive()
    wait_for(lambda: len(_owned(heir)) == len(heir.leases) >= 2, what="the leases to go over")


def test_drain_when_nobody_is_left_then_it_does_not_wait(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    cluster = make_cluster(lease_s=3600.0)
    cluster.client.post("/runs", make_run(), RunView)
    last = cluster.loader()
    cluster.constructor()
    cluster.open(1)
    wait_for(lambda: last.leases, what="the leases")
    assert last.link.drain(30.0)
    assert last.leases == []


def test_leases_when_the_planner_starts_again_then_nothing_has_moved(cluster: Cluster, make_run: MakeRun) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    loaders = [cluster.loader() for _ in range(3)]
    cluster.constructor()
    cluster.open(1)
    loaders[0].close()
    wait_for(lambda: sum(len(_owned(loader)) for loader in loaders[1:]) == 4, what="the leases to move")
    before = set(cluster.server.planner.store.actors.leases())
    cluster.restart()
    wait_for(lambda: cluster.server.planner.store.bulletin.seen("leases") > 1, what="leases to be looked at")
    assert set(cluster.server.planner.store.actors.leases()) == before


def test_leases_when_a_generation_is_fenced_and_the_next_is_not_open_then_nothing_moves(
    cluster: Cluster, make_run: MakeRun
) -> None:
    cluster.client.post("/runs", make_run(), RunView)
    loaders = [cluster.loader() for _ in range(3)]
    cluster.constructor()
    generation = cluster.open(1)
    loaders[0].close()
    wait_for(lambda: sum(len(_owned(loader)) for loader in loaders[1:]) == 4, what="the leases to move")
    store = cluster.server.planner.store
    before = {lease for lease in store.actors.leases() if lease.source >= 0}
    seen = store.bulletin.seen("leases")
    store.generations.fence(GenerationKey(run="run", stream="train", generation=generation), "rank 0 joined again")
    store.bulletin.post("actors")
    wait_for(lambda: store.bulletin.seen("leases") > seen, what="leases to be looked at")
    assert {lease for lease in store.actors.leases() if lease.source >= 0} == before
    assert cluster.open(1, word="again") == generation + 1
    wait_for(lambda: any(lease.generation == generation + 1 for lease in store.actors.leases()), what="the next")
    assert {lease for lease in store.actors.leases() if lease.source >= 0} == before


@pytest.mark.parametrize("others_beat", [True, False])
def test_lease_when_its_owner_neither_beats_nor_refuses_then_it_lapses_unless_nobody_is_heard(
    cluster: Cluster, others_beat: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        silent = _register(cluster, address=f"grpc://127.0.0.1:{frozen.getsockname()[1]}").actor_id
        other = cluster.loader()
        if others_beat:
            wait_for(lambda: len(list_actors(cluster.client)) == 1, what="the silent one to be given up")
            assert list_actors(cluster.client)[0].actor_id == other.link.actor_id
            return
        other.link.close(leave=False)  # its port does not refuse: nobody can be heard at all
        wait_for(lambda: list_actors(cluster.client)[0].heartbeat_age_s > 2.0, what="two leases to pass")
        assert {actor.actor_id for actor in list_actors(cluster.client)} == {silent, other.link.actor_id}
        _beat(cluster, silent)
