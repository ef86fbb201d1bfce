from __future__ import annotations

from typing import Any

import pytest

from loadmaster_flight.wire.control import JoinRequest
from loadmaster_flight.wire.errors import ConflictError
from loadmaster_server.runs.rendezvous import ENTRY_LIFE_S, Entry, Rendezvous


def _entry(rank: int, *, seen_s: float = 0.0, **request: Any) -> Entry:
    wanted: dict[str, Any] = {"rank": rank, "world_size": 2, "nonce": f"n{rank}"} | request
    return Entry(request=JoinRequest(**wanted), mesh={"dp": 2}, seen_s=seen_s)


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


def test_enter_when_a_rank_comes_again_then_its_newest_attempt_counts() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(0, nonce="old", step=5, parent=0))
    meeting.enter(_entry(0, nonce="new", step=3, parent=0))
    meeting.enter(_entry(1, step=3, parent=0))
    assert [entry.request.nonce for entry in meeting.take()] == ["new", "n1"]


def test_enter_when_steps_differ_then_conflict_names_both_and_keeps_the_first() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(0, step=38, parent=2))
    with pytest.raises(ConflictError, match="rank 1 resumes at step 40 but rank 0 resumes at step 38"):
        meeting.enter(_entry(1, step=40, parent=2))
    assert meeting.waiting_for(0.0) == [1]


def test_enter_when_parents_differ_then_conflict() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(0, parent=2))
    with pytest.raises(ConflictError, match="rank 1 resumes from generation 1 but rank 0"):
        meeting.enter(_entry(1, parent=1))


def test_enter_when_the_other_went_silent_then_it_is_no_longer_here() -> None:
    meeting = Rendezvous()
    meeting.enter(_entry(0, step=38, parent=2))
    meeting.enter(_entry(1, seen_s=ENTRY_LIFE_S + 1, step=40, parent=2))
    assert meeting.waiting_for(ENTRY_LIFE_S + 1) == [0]
