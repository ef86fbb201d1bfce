"""The clock that leases lapse by stands still while the planner cannot hear."""

from __future__ import annotations

import time

import pytest

from loadmaster_server.actors.hearing import Hearing

TICK_S, PATIENCE_S, GRACE_S = 0.25, 1.0, 1.0


class Hours:
    """A planner's thread that ticks, and somebody who reports at each tick while `is_heard`."""

    def __init__(self) -> None:
        self.is_open = self.is_heard = True
        self.hearing = Hearing(patience_s=PATIENCE_S, grace_s=GRACE_S, is_open=lambda: self.is_open)
        self.now_s = time.monotonic()
        self.hearing.hear(now_s=self.now_s)

    def go_on(self, for_s: float) -> float:
        """Let time pass; returns how much of it counted."""
        before_s = self.hearing.now_s
        for _ in range(int(for_s / TICK_S)):
            self.now_s += TICK_S
            if self.is_heard:
                self.hearing.hear(now_s=self.now_s)
            self.hearing.tick(now_s=self.now_s)
        return self.hearing.now_s - before_s


def test_hearing_when_somebody_is_heard_then_all_time_counts_after_the_grace() -> None:
    hours = Hours()
    assert hours.go_on(GRACE_S) <= 2 * TICK_S
    assert hours.go_on(5.0) == pytest.approx(5.0)


def test_hearing_when_stopped_then_neither_that_time_nor_the_grace_after_it_counts() -> None:
    hours = Hours()
    hours.go_on(5.0)
    assert hours.hearing.is_back
    hours.now_s += 3600.0
    assert hours.go_on(TICK_S) == 0.0
    assert not hours.hearing.is_back
    assert hours.go_on(GRACE_S + TICK_S) <= 2 * TICK_S
    assert hours.hearing.is_back
    assert hours.go_on(5.0) == pytest.approx(5.0)


def test_hearing_when_the_planner_may_not_act_then_nothing_counts() -> None:
    hours = Hours()
    hours.go_on(5.0)
    hours.is_open = False
    assert hours.go_on(60.0) == 0.0


def test_hearing_when_nobody_is_heard_then_no_more_than_the_patience_counts() -> None:
    hours = Hours()
    hours.go_on(5.0)
    hours.is_heard = False
    assert hours.go_on(60.0) <= PATIENCE_S + TICK_S
    hours.is_heard = True
    assert hours.go_on(GRACE_S) == 0.0
    assert hours.go_on(5.0) >= 5.0 - TICK_S
