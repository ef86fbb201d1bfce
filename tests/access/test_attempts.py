"""Failed attempts to sign in."""

from __future__ import annotations

import pytest

from loadmaster_flight.wire.errors import BusyError
from loadmaster_server.access.attempts import MAX_IN_ALL, MAX_OF_ADDRESS, Attempts


def test_check_when_one_address_fails_too_often_then_it_waits_and_others_do_not() -> None:
    now_s = 0.0
    attempts = Attempts(lambda: now_s)
    for _ in range(MAX_OF_ADDRESS):
        attempts.check("a")
        attempts.note("a")
    now_s = 20.0
    with pytest.raises(BusyError, match="wait 40 s") as caught:
        attempts.check("a")
    assert caught.value.details == {"retry_after_s": 40}
    attempts.check("b")
    now_s = 60.0
    attempts.check("a")


def test_check_when_many_addresses_fail_then_nobody_tries_for_a_while() -> None:
    attempts = Attempts(lambda: 0.0)
    for number in range(MAX_IN_ALL):
        attempts.note(f"10.0.0.{number}")
    with pytest.raises(BusyError):
        attempts.check("192.168.0.1")
