"""Rendezvous, fencing, resuming and tickets over real HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.wire.control import (
    CreateRunRequest,
    JoinReply,
    RankReport,
    RunView,
    StreamView,
    TicketReply,
    TicketRequest,
)
from loadmaster_flight.wire.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    GoneError,
    MeshError,
    NotFoundError,
    NotReadyError,
)
from loadmaster_flight.wire.http import retrying
from loadmaster_flight.wire.tickets import RankTicket, verify_as
from loadmaster_server.store import GenerationKey
from support.synthetic import DEADLINE_S, Cluster, FakeConstructor, wait_for


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], make_run: Callable[..., CreateRunRequest]) -> Cluster:
    """A planner with one run and nobody around it."""
    cluster: Cluster = make_cluster()
    cluster.client.post("/runs", make_run(), RunView)
    return cluster


def _ticket(cluster: Cluster, rank: int = 0, first_step: int = 0, generation: int = 0, word: str = "n") -> TicketReply:
    """As the rank that joined with a word."""
    request = TicketRequest(generation=generation, rank=rank, first_step=first_step, nonce=f"{word}{rank}")
    return cluster.client.post("/runs/run/streams/train/tickets", request, TicketReply)


def test_join_when_alone_then_open_at_once(cluster: Cluster) -> None:
    reply = cluster.join()
    assert reply == JoinReply(
        state="open",
        generation=0,
        coords={"pp": 0, "dp": 0, "cp": 0, "tp": 0},
        mesh={"pp": 1, "dp": 1, "cp": 1, "tp": 1},
        source_names=["web", "code"],
        layout="pack",
    )


def test_join_when_others_are_missing_then_waiting_names_them(cluster: Cluster) -> None:
    reply = cluster.join(rank=1, world_size=4)
    assert (reply.state, reply.waiting_for, reply.generation) == ("waiting", [0, 2, 3], -1)
    view = cluster.client.get("/runs/run/streams/train", StreamView)
    assert (view.state, view.waiting_for) == ("joining", [0, 2, 3])


def test_join_when_the_last_rank_comes_then_all_that_wait_are_answered(cluster: Cluster) -> None:
    replies: list[JoinReply] = []

    def wait_as(rank: int) -> None:
        reply = cluster.join(rank=rank, world_size=4, nonce=f"n{rank}")
        while reply.state == "waiting":
            reply = cluster.join(rank=rank, world_size=4, nonce=f"n{rank}")
        replies.append(reply)
        cluster.client.close()

    threads = [threading.Thread(target=wait_as, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(reply.coords["dp"] for reply in replies) == [0, 1, 2, 3]
    assert {reply.generation for reply in replies} == {0}


def test_join_when_repeated_then_open_again(cluster: Cluster) -> None:
    assert cluster.join() == cluster.join()
    assert cluster.client.get("/runs/run/streams/train", StreamView).generation == 0


def test_join_when_a_rank_comes_with_a_new_nonce_then_the_complete_set_fences_the_old(cluster: Cluster) -> None:
    assert cluster.open(2, word="a") == 0
    assert cluster.join(rank=0, world_size=2, nonce="b0").waiting_for == [1]
    assert cluster.join(rank=1, world_size=2, nonce="b1").waiting_for == [0]
    assert cluster.join(rank=0, world_size=2, nonce="b0").generation == 1
    with pytest.raises(GoneError, match="connect again"):
        cluster.join(rank=1, world_size=2, nonce="a1")
    with pytest.raises(GoneError, match=r"replaced by generation 1|is over: rank 0 joined again"):
        cluster.plans(0, 1, generation=0)


def _report(*acknowledged: int, left: list[int] | None = None, seen_s: float = 0.1) -> RankReport:
    ranks = list(range(len(acknowledged)))
    quiet_s = [seen_s] * len(ranks)
    return RankReport(
        ranks=ranks, acknowledged=list(acknowledged), seen_s=quiet_s, moved_s=quiet_s, left=left or [], unheard=[]
    )


def _told(cluster: Cluster, constructor: FakeConstructor, report: RankReport) -> None:
    """Wait until the planner has heard of it."""
    constructor.ranks = report
    key = GenerationKey(run="run", stream="train", generation=0)
    ranks = cluster.server.planner.ranks
    wait_for(
        lambda: (word := ranks.word(key, 0)) and word.has_left == (0 in report.left) and word.told_s, what="a heartbeat"
    )


def test_join_when_a_rank_restarts_alone_then_the_others_learn_it_at_once(cluster: Cluster) -> None:
    constructor = cluster.constructor()
    cluster.open(2, word="a")
    _told(cluster, constructor, _report(3, 3))
    num_joins = 0  # each waits 0.3 to 1 s for the other rank, whose silence is final only much later
    while cluster.client.get("/runs/run/streams/train", StreamView).state == "open":
        assert cluster.join(rank=0, world_size=2, nonce="b0").waiting_for == [1]
        num_joins += 1
    assert num_joins <= 10
    with pytest.raises(GoneError, match="run/train generation 0 is over: rank 0 joined again"):
        _ticket(cluster, rank=1)
    with pytest.raises(GoneError, match="rank 0 joined again"):
        cluster.join(rank=1, world_size=2, nonce="a1")
    view = cluster.client.get("/runs/run/streams/train", StreamView)
    assert (view.state, view.reason, view.waiting_text) == (
        "joining",
        "rank 0 joined again",
        "waiting for rank 1 to join",
    )
    assert cluster.client.get("/runs/run", RunView).state == "joining"
    assert cluster.join(rank=1, world_size=2, nonce="b1").waiting_for == [0]
    assert cluster.join(rank=0, world_size=2, nonce="b0").generation == 1
    assert cluster.client.get("/runs/run/streams/train", StreamView).state == "open"


def test_join_when_no_constructor_says_anything_of_the_rank_then_its_generation_ends_all_the_same(
    cluster: Cluster,
) -> None:
    cluster.open(2, word="a")
    while cluster.client.get("/runs/run/streams/train", StreamView).state == "open":
        cluster.join(rank=0, world_size=2, nonce="b0")
    with pytest.raises(GoneError, match="rank 0 joined again"):
        cluster.plans(0, 1)


def test_join_when_the_rank_closed_its_stream_before_then_the_others_may_read_on(cluster: Cluster) -> None:
    constructor = cluster.constructor()
    cluster.open(2, word="a")
    _told(cluster, constructor, _report(3, 2, left=[0]))
    until_s = time.monotonic() + 3.0
    while time.monotonic() < until_s:
        assert cluster.join(rank=0, world_size=2, nonce="b0").waiting_for == [1]
    assert _ticket(cluster, rank=1, first_step=2, word="a").address == constructor.address


def test_stream_view_when_a_rank_is_silent_then_it_is_named_with_when_it_was_seen(cluster: Cluster) -> None:
    constructor = cluster.constructor()
    cluster.open(2, word="a")
    _told(cluster, constructor, _report(3, 3, seen_s=40.0))
    view = wait_for(
        lambda: v if (v := cluster.client.get("/runs/run/streams/train", StreamView)).ranks else None, what="a view"
    )
    assert [(rank.rank, rank.acknowledged, rank.state) for rank in view.ranks] == [(0, 3, "silent"), (1, 3, "silent")]
    assert view.waiting_text.startswith("waiting for rank 0, last seen 40 s ago; rank 1, last seen 4")
    wait_for(
        lambda: constructor.released and "rank 0, last seen 4" in constructor.released[0].status,
        what="the planner's word to reach the constructor",
    )


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"world_size": 4}, "rank 1 has world_size 4 but rank 0 has world_size 2"),
        ({"mesh": {"tp": 2}}, "rank 1 has the mesh"),
    ],
)
def test_join_when_ranks_disagree_then_conflict_names_both(cluster: Cluster, other: dict[str, Any], says: str) -> None:
    cluster.join(rank=0, world_size=2)
    assert cluster.join(**({"rank": 1, "world_size": 2} | other)).state == "waiting"
    cluster.join(rank=0, world_size=2)
    with pytest.raises(ConflictError, match=says):
        cluster.join(**({"rank": 1, "world_size": 2} | other))


def test_join_when_a_rank_died_while_it_waited_then_it_is_not_counted_in(cluster: Cluster) -> None:
    cluster.join(rank=1, world_size=2, nonce="dead")
    assert cluster.join(rank=0, world_size=2, nonce="n0").waiting_for == [1]
    assert cluster.join(rank=0, world_size=2, nonce="n0").waiting_for == [1]
    assert cluster.join(rank=1, world_size=2, nonce="n1").waiting_for == [0]
    assert cluster.join(rank=0, world_size=2, nonce="n0").state == "open"
    assert cluster.join(rank=1, world_size=2, nonce="n1").generation == 0


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        ({"rank": 2, "world_size": 2}, BadRequestError, r"rank must be in \[0, 2\), got 2"),
        ({"world_size": 0}, BadRequestError, "world_size must be in"),
        ({"nonce": ""}, BadRequestError, "nonce must have 1 to 64"),
        ({"step": 3}, BadRequestError, "step must be 0 without a parent"),
        ({"step": -1, "parent": 0}, BadRequestError, "step must be at least 0"),
        ({"step": 3, "parent": 5}, NotFoundError, "run/train generation 5"),
        ({"world_size": 3}, MeshError, "dp must divide microbatches, got dp 3 and 4"),
        ({"world_size": 4, "mesh": {"dp": 2}}, MeshError, "world_size = 4 ranks, got pp 1 . dp 2"),
        ({"world_size": 4, "mesh": {"xp": 2}}, MeshError, "got 'xp'"),
        ({"world_size": 4, "coords": {"dp": 3}}, MeshError, "rank 0 says dp = 3, but .* it is 0"),
    ],
)
def test_join_when_impossible_then_refused(
    cluster: Cluster, request_: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        cluster.join(**request_)


def test_join_when_stream_is_unknown_then_not_found(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match="no stream run/nope"):
        cluster.join(stream="nope")


def test_resume_when_beyond_what_was_bound_then_conflict(cluster: Cluster) -> None:
    cluster.open()
    cluster.loader()
    cluster.planned(6)
    assert len(cluster.plans(0, 3, bind=1)) == 3
    with pytest.raises(ConflictError, match="at most 3, got 4") as caught:
        cluster.join(nonce="again", step=4, parent=0)
    assert caught.value.details == {"bound": 3}
    reply = cluster.join(nonce="again", step=3, parent=0)
    assert (reply.generation, reply.first_step) == (1, 3)


def test_resume_when_ranks_name_other_steps_then_conflict_names_both(cluster: Cluster) -> None:
    cluster.open()
    cluster.loader()
    cluster.planned(4)
    cluster.plans(0, 4, bind=1)
    cluster.join(rank=0, world_size=2, nonce="b0", step=4, parent=0)
    cluster.join(rank=1, world_size=2, nonce="b1", step=2, parent=0)
    cluster.join(rank=0, world_size=2, nonce="b0", step=4, parent=0)
    with pytest.raises(ConflictError, match="rank 1 resumes at step 2 but rank 0 resumes at step 4"):
        cluster.join(rank=1, world_size=2, nonce="b1", step=2, parent=0)


def test_ticket_when_no_constructor_is_there_then_not_ready(cluster: Cluster) -> None:
    cluster.open()
    with pytest.raises(NotReadyError, match=r"serves rank 0 \(dp 0\)"):
        _ticket(cluster)


def test_ticket_then_signed_for_the_window_and_the_constructor_of_the_rank(cluster: Cluster) -> None:
    constructors = [cluster.constructor() for _ in range(2)]
    cluster.open(4)
    reply = retrying(lambda: _ticket(cluster, rank=3, first_step=5), deadline_s=DEADLINE_S)
    ticket = verify_as(RankTicket, bytes.fromhex(reply.ticket_hex), cluster.server.planner.store.ticket_key)
    assert (ticket.run, ticket.stream, ticket.generation, ticket.rank) == ("run", "train", 0, 3)
    assert (ticket.first_step, ticket.last_step, reply.last_step) == (5, 69, 69)
    assert reply.address == constructors[1].address


def test_ticket_when_its_constructor_dies_then_the_next_one_names_another(cluster: Cluster) -> None:
    stays, dies = cluster.constructor(), cluster.constructor()
    cluster.open(2)
    wait_for(lambda: dies.assignments, what="an assignment")
    assert _ticket(cluster, rank=1).address == dies.address
    dies.kill()
    retrying(lambda: _ticket(cluster, rank=1), deadline_s=DEADLINE_S)
    wait_for(lambda: stays.assignments[0].ranks == [0, 1], what="the rank to move")
    assert _ticket(cluster, rank=1).address == stays.address


def test_ticket_when_wrong_then_refused(cluster: Cluster) -> None:
    cluster.open()
    with pytest.raises(BadRequestError, match=r"rank must be in \[0, 1\), got 1"):
        _ticket(cluster, rank=1)
    with pytest.raises(NotFoundError, match="generation 9"):
        _ticket(cluster, generation=9)
    with pytest.raises(ForbiddenError, match="rank 0 of run/train generation 0 joined with another nonce"):
        _ticket(cluster, word="x")
    cluster.open(word="b")
    with pytest.raises(GoneError):
        _ticket(cluster, generation=0)


def test_join_when_cp_does_not_divide_align_then_refused_before_any_generation(cluster: Cluster) -> None:
    with pytest.raises(MeshError, match=r"2 \* cp must divide align, got cp 3 and align 16"):
        cluster.join(rank=0, world_size=3, mesh={"cp": 3})


def test_ticket_when_tp_mode_is_broadcast_then_only_tp_0_gets_one(
    make_cluster: Callable[..., Cluster], make_run: Callable[..., CreateRunRequest]
) -> None:
    cluster = make_cluster()
    cluster.client.post("/runs", make_run(mesh={"tp": 2, "tp_mode": "broadcast"}), RunView)
    cluster.open(2, word="a")
    reply = cluster.join(rank=1, world_size=2, nonce="a1")
    assert (reply.tp_mode, reply.fetches, reply.coords["tp"]) == ("broadcast", False, 1)
    with pytest.raises(BadRequestError, match=r"rank must be of tp 0 where mesh\.tp_mode is broadcast, got rank 1"):
        _ticket(cluster, rank=1, word="a")
    with pytest.raises(NotReadyError, match="no constructor is there yet"):
        _ticket(cluster, rank=0, word="a")
