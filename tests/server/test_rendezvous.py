from __future__ import annotations

from typing import Any

import pytest

from loadmaster_flight.wire.control import JoinRequest
from loadmaster_flight.wire.errors import ConflictError
from loadmaster_server.runs.rendezvous import ENTRY_LIFE_S, Entry, Rendezvous


def _entry(rank: int, *, asked_s: float = 0.0, **request: Any) -> Entry:
    wanted: dict[str, Any] = {"rank": rank, "world_size": 2, "nonce": f"n{rank}"} | request
    return Entry(request=JoinRequest(**wanted), mesh={"dp": 2}, asked_s=asked_s, since_s=asked_s)


def test_waiting_for_when_nobody_is_here_then_nobody() -> None:
    assert Rendezvous().waiting_for(0.0) == []


def test_take_when_all_are_here_then_in_order_and_empty_afterwards() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(1))
    assert meeting.waiting_for(0.0) == [0]
    meeting.enter(_entry(0))
    assert meeting.waiting_for(0.0) == []
    assert [entry.request.rank for entry in meeting.take()] == [0, 1]
    assert meeting.take() == []


def test_waiting_for_when_the_last_rank_came_then_those_that_did_not_ask_since() -> None:
    meeting = Rendezvous()
    assert meeting.enter(_entry(1, asked_s=1.0))
    assert not meeting.enter(_entry(1, asked_s=2.0))
    assert meeting.enter(_entry(0, asked_s=3.0))
    assert meeting.waiting_for(3.0) == [1]
    assert meeting.must_ask_again(1)
    assert not meeting.must_ask_again(0)
    assert not meeting.enter(_entry(1, asked_s=3.5))
    assert meeting.waiting_for(3.5) == []


def test_waiting_for_when_a_rank_died_here_and_came_back_then_both_must_ask() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(1, asked_s=1.0, nonce="dead"))
    meeting.enter(_entry(0, asked_s=2.0))
    assert meeting.waiting_for(2.0) == [1]
    meeting.enter(_entry(1, asked_s=3.0, nonce="alive"))
    assert meeting.waiting_for(3.0) == [0]
    meeting.enter(_entry(0, asked_s=3.1))
    assert meeting.waiting_for(3.1) == []
    assert [entry.request.nonce for entry in meeting.take()] == ["n0", "alive"]


def test_enter_when_a_rank_comes_again_then_its_newest_attempt_counts() -> None:
    meeting = Rendezvous()
    old, new = _entry(0, nonce="old", step=5, parent=0), _entry(0, asked_s=1.0, nonce="new", step=3, parent=0)
    assert meeting.enter(old)
    assert meeting.enter(new)
    assert not meeting.enter(old)
    assert meeting.is_here(new.request)
    assert not meeting.is_here(old.request)


def test_enter_when_steps_differ_and_both_ask_again_then_conflict_names_both_and_keeps_the_first() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(0, asked_s=1.0, step=38, parent=2))
    meeting.enter(_entry(1, asked_s=2.0, step=40, parent=2))
    assert meeting.waiting_for(2.0) == [1]
    meeting.enter(_entry(0, asked_s=3.0, step=38, parent=2))
    with pytest.raises(ConflictError, match="rank 1 resumes at step 40 but rank 0 resumes at step 38"):
        meeting.enter(_entry(1, asked_s=4.0, step=40, parent=2))
    assert meeting.waiting_for(4.0) == [1]


def test_enter_when_parents_differ_then_conflict() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(0, parent=2))
    meeting.enter(_entry(1, asked_s=1.0, parent=1))
    meeting.enter(_entry(0, asked_s=2.0, parent=2))
    with pytest.raises(ConflictError, match="rank 1 resumes from generation 1 but rank 0"):
        meeting.enter(_entry(1, asked_s=3.0, parent=1))


def test_enter_when_the_one_that_disagrees_went_silent_then_it_is_no_longer_here() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(3, world_size=4))
    for asked_s in (1.0, ENTRY_LIFE_S, ENTRY_LIFE_S + 1):
        meeting.enter(_entry(0, asked_s=asked_s))
        meeting.enter(_entry(1, asked_s=asked_s))
    assert meeting.waiting_for(ENTRY_LIFE_S + 1) == []
    assert [entry.request.world_size for entry in meeting.take()] == [2, 2]
