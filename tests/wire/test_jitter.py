"""Waits that differ."""

from __future__ import annotations

import random

from loadmaster_flight.wire.jitter import jittered


def test_jittered_when_asked_often_then_within_bounds_and_the_caller_s_numbers_stay() -> None:
    before = random.getstate()
    waits = [jittered(2.0) for _ in range(100)]
    assert random.getstate() == before
    assert len(set(waits)) > 90
    assert all(1.0 <= wait <= 2.0 for wait in waits)
