"""Whoever may not, is told so with a code of its own, and it is counted: Flight."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.wire.actions import MAX_ACTION_BYTES, Action
from loadmaster_flight.wire.errors import BY_CODE, BadRequestError, LoadmasterError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.tickets import MAX_TICKET_BYTES, MaterializeTicket, MeasureTicket, RankTicket, sign
from support.commands import wait_until
from support.secured import RUN, Secured, read

Make = Callable[[bytes, int], bytes]


def _rank(generation: int, **changes: Any) -> RankTicket:
    right = {"run": RUN, "stream": "train", "rank": 0, "first_step": 0, "last_step": 8, "generation": generation}
    return RankTicket(**{"expires_at": time.time() + 60, **right, **changes})


def _measure(**changes: Any) -> MeasureTicket:
    right: dict[str, Any] = {"run": RUN, "source": 0, "epoch": 0, "cursors": [[0, 0, 0, 0]], "rows_per_lane": 4}
    return MeasureTicket(**{"expires_at": time.time() + 60, **right, **changes})


def _materialize(generation: int) -> MaterializeTicket:
    return MaterializeTicket(
        run=RUN, stream="train", generation=generation, first_step=0, last_step=1, digests=["0"], dp_ranks=[0],
        partitions=[[0, 0, 1]], expires_at=time.time() + 60,
    )  # fmt: skip


def _other_rank(key: bytes, generation: int) -> bytes:
    """Rank 0's own ticket, with another rank written over it."""
    return sign(_rank(generation), key).replace(b'"rank":0', b'"rank":1')


REFUSED: list[tuple[str, str, Make, str, str]] = [
    ("none", "constructor", lambda key, g: b"", "UNAUTHENTICATED", "there is no ticket"),
    ("expired", "constructor", lambda key, g: sign(_rank(g, expires_at=1.0), key), "UNAUTHENTICATED", "has expired"),
    ("forged", "constructor", lambda key, g: sign(_rank(g), bytes(32)), "UNAUTHENTICATED", "signature does not match"),
    ("written over", "constructor", _other_rank, "UNAUTHENTICATED", "signature does not match"),
    ("role", "constructor", lambda key, g: sign(_measure(), key), "FORBIDDEN", "expected a RankTicket"),
    (
        "generation",
        "constructor",
        lambda key, g: sign(_rank(g - 1), key),
        "GONE",
        "generation . of run secured is over",
    ),
    ("rank", "constructor", lambda key, g: sign(_rank(g, rank=2), key), "FORBIDDEN", r"rank must be in \[0, 2\)"),
    ("run", "constructor", lambda key, g: sign(_rank(g, run="other"), key), "MOVED", "is not served here"),
    ("none", "loader", lambda key, g: b"", "UNAUTHENTICATED", "there is no ticket"),
    ("expired", "loader", lambda key, g: sign(_measure(expires_at=1.0), key), "UNAUTHENTICATED", "has expired"),
    ("forged", "loader", lambda key, g: sign(_measure(), bytes(32)), "UNAUTHENTICATED", "signature does not match"),
    ("role", "loader", lambda key, g: sign(_rank(g), key), "FORBIDDEN", "got a RankTicket"),
    ("generation", "loader", lambda key, g: sign(_materialize(g - 1), key), "GONE", "generation"),
    ("run", "loader", lambda key, g: sign(_measure(run="other"), key), "NOT_FOUND", "other"),
]


@pytest.fixture(scope="module")
def generation(plane: Secured) -> int:
    """That both ranks read now; one before it is over."""
    read(plane, 1)
    return read(plane, 1)


@pytest.mark.parametrize(
    ("whom", "make", "code", "says"), [row[1:] for row in REFUSED], ids=[f"{row[1]}-{row[0]}" for row in REFUSED]
)
def test_ticket_when_it_is_not_good_then_refused_with_its_code_and_counted(
    plane: Secured, generation: int, whom: str, make: Make, code: str, says: str
) -> None:
    service = getattr(plane, whom).service
    before = service.refusals().get(code, 0)
    ticket = make(plane.server.planner.store.ticket_key, generation)
    with FlightPeer(service.address, tls=plane.tls()) as peer, pytest.raises(LoadmasterError, match=says) as caught:
        peer.read_all(ticket, timeout_s=20)
    assert type(caught.value) is BY_CODE[code]
    assert "Traceback" not in caught.value.message
    assert service.refusals()[code] == before + 1


def test_acknowledgement_when_its_ticket_is_another_ranks_then_refused(plane: Secured, generation: int) -> None:
    key = plane.server.planner.store.ticket_key
    body = {"ticket_hex": _other_rank(key, generation).hex(), "step": 1}
    with (
        FlightPeer(plane.constructor.service.address, tls=plane.tls()) as peer,
        pytest.raises(LoadmasterError, match="signature does not match"),
    ):
        peer.action(Action.ACK, body)


def test_calls_when_they_are_too_large_then_refused(plane: Secured) -> None:
    with FlightPeer(plane.constructor.service.address, tls=plane.tls()) as peer:
        with pytest.raises(BadRequestError, match=f"to {MAX_TICKET_BYTES} bytes"):
            peer.read_all(b"\1\1" + bytes(MAX_TICKET_BYTES), timeout_s=20)
        with pytest.raises(BadRequestError, match=f"at most {MAX_ACTION_BYTES} bytes"):
            peer.action(Action.HEALTH, {"pad": "x" * MAX_ACTION_BYTES})


def test_refusals_when_tickets_are_not_good_then_the_planner_hears_how_many(plane: Secured) -> None:
    for service in (plane.loader.service, plane.constructor.service):
        with FlightPeer(service.address, tls=plane.tls()) as peer, pytest.raises(LoadmasterError):
            peer.read_all(b"", timeout_s=20)

    def told() -> list[float]:
        return [view.stats.get("refused_callers", 0.0) for view in plane.server.planner.actors.views()]

    wait_until(lambda: min(told()) >= 1, timeout_s=20, what="a heartbeat")
