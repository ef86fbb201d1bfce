"""Tickets: what is signed comes back, and nothing else is believed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import BadRequestError, ForbiddenError, UnauthenticatedError
from loadmaster_flight.wire.tickets import (
    MAX_TICKET_BYTES,
    MaterializeTicket,
    MeasureTicket,
    RankTicket,
    ShowTicket,
    Ticket,
    sign,
    verify,
    verify_as,
)

KEY = b"a key of thirty-two bytes, or so"
FAR_S = 1e12
names = st.text(min_size=1, max_size=40)
steps = st.integers(0, 1 << 40)

tickets: st.SearchStrategy[Ticket] = st.one_of(
    st.builds(
        RankTicket,
        run=names,
        stream=names,
        generation=steps,
        rank=steps,
        first_step=steps,
        last_step=steps,
        expires_at=st.just(FAR_S),
    ),
    st.builds(
        MeasureTicket,
        run=names,
        source=steps,
        epoch=steps,
        cursors=st.lists(st.lists(steps, min_size=4, max_size=4), max_size=8),
        rows_per_lane=steps,
        expires_at=st.just(FAR_S),
    ),
    st.builds(
        ShowTicket,
        run=names,
        source=steps,
        epoch=steps,
        places=st.lists(st.lists(steps, min_size=3, max_size=3), max_size=8),
        by_row=st.booleans(),
        has_text=st.booleans(),
        expires_at=st.just(FAR_S),
    ),
    st.builds(
        MaterializeTicket,
        run=names,
        stream=names,
        generation=steps,
        first_step=steps,
        last_step=steps,
        digests=st.lists(names, max_size=4),
        dp_ranks=st.lists(steps, max_size=8),
        partitions=st.lists(st.lists(steps, min_size=3, max_size=3), max_size=8),
        expires_at=st.just(FAR_S),
    ),
)


@given(ticket=tickets)
def test_verify_when_signed_with_the_same_key_then_the_ticket_comes_back(ticket: Ticket) -> None:
    assert verify(sign(ticket, KEY), KEY) == ticket


@given(ticket=tickets, data=st.data())
def test_verify_when_any_bit_is_changed_then_it_is_refused(ticket: Ticket, data: st.DataObject) -> None:
    raw = bytearray(sign(ticket, KEY))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises((UnauthenticatedError, BadRequestError)):
        verify(bytes(raw), KEY)


@given(raw=st.binary(max_size=200))
def test_verify_when_it_is_any_bytes_then_only_our_errors_come(raw: bytes) -> None:
    with pytest.raises((UnauthenticatedError, BadRequestError)):
        verify(raw, KEY)


def rank_ticket(**changes: object) -> RankTicket:
    fields = {"run": "r", "stream": "train", "generation": 1, "rank": 0, "first_step": 0, "last_step": 8}
    return RankTicket(**{"expires_at": FAR_S, **fields, **changes})  # type: ignore[arg-type]


def test_verify_when_expired_then_the_error_can_be_told_from_a_forgery() -> None:
    with pytest.raises(UnauthenticatedError, match="expired") as caught:
        verify(sign(rank_ticket(expires_at=10.0), KEY), KEY, now_s=10.5)
    assert caught.value.details == {"expired": True}
    assert verify(sign(rank_ticket(expires_at=10.0), KEY), KEY, now_s=9.5)


def test_verify_when_there_is_none_then_it_is_as_if_nobody_asked() -> None:
    with pytest.raises(UnauthenticatedError, match="there is no ticket"):
        verify(b"", KEY)


def test_verify_when_signed_with_another_key_then_it_is_refused() -> None:
    with pytest.raises(UnauthenticatedError, match="signature"):
        verify(sign(rank_ticket(), b"another"), KEY)


def test_verify_when_too_long_then_it_is_refused_unread() -> None:
    with pytest.raises(BadRequestError, match=f"to {MAX_TICKET_BYTES} bytes"):
        verify(sign(rank_ticket(run="x" * MAX_TICKET_BYTES), KEY), KEY)


def test_verify_as_when_of_another_kind_then_both_kinds_are_named() -> None:
    with pytest.raises(ForbiddenError, match="expected a MeasureTicket, got a RankTicket"):
        verify_as(MeasureTicket, sign(rank_ticket(), KEY), KEY)


def test_sign_when_given_a_ticket_then_its_payload_is_plain_json() -> None:
    assert json.loads(sign(rank_ticket(), KEY)[2:-16])["stream"] == "train"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cursors": [["a", 0, 0, 0]]}, r"cursors of a MeasureTicket must be of type list\[list\[int\]\]"),
        ({"cursors": 3}, "cursors"),
        ({"source": 1.5}, "source of a MeasureTicket must be of type int"),
        ({"epoch": 1 << 70}, "epoch"),
        ({"rows_per_lane": True}, "rows_per_lane"),
        ({"run": None}, "run of a MeasureTicket must be of type str"),
        ({"expires_at": "never"}, "expires_at"),
    ],
)
def test_verify_when_a_signed_field_is_of_another_type_then_it_is_named(change: dict[str, Any], says: str) -> None:
    good = MeasureTicket(run="r", source=0, epoch=0, cursors=[[0, 0, 0, 0]], rows_per_lane=1, expires_at=FAR_S)
    with pytest.raises(BadRequestError, match=says):
        verify(sign(dataclasses.replace(good, **change), KEY), KEY)
