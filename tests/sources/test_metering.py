"""What is counted of reads, and what a loader reports of it."""

from __future__ import annotations

import threading

import pytest

from loadmaster_flight.loader.reporting import SourceReporter, WorkerClock
from loadmaster_flight.sources.attempts import Patience
from loadmaster_flight.sources.metering import ReadMeter
from loadmaster_flight.wire.errors import UnavailableError
from loadmaster_flight.wire.stages import BLOCKED, BUSY, IDLE


def test_look_when_reads_took_different_times_then_percentiles_are_of_the_last_ones() -> None:
    meter = ReadMeter()
    for _ in range(1000):
        meter.read(1.0, 10)
    for took_ms in range(256):
        meter.read(took_ms / 1e3, 10)
    found = meter.look()
    assert (found.reads, found.read_bytes) == (1256, 12560)
    assert found.p50_ms == pytest.approx(127.5)
    assert found.p99_ms == pytest.approx(252.45)
    assert (found.errors, found.last_error, found.last_error_s) == (0, "", -1.0)


def test_look_when_a_read_fails_then_the_error_stays_and_failing_ends_with_the_next_read() -> None:
    meter = ReadMeter()
    meter.retry(OSError("503 Slow Down"))
    meter.fail(UnavailableError("shard 3 cannot be read"))
    found = meter.look()
    assert (found.errors, found.retries, found.is_failing) == (1, 1, True)
    assert "shard 3 cannot be read" in found.last_error
    meter.read(0.1, 1)
    assert (meter.look().is_failing, meter.look().errors) == (False, 1)


def test_patience_when_tries_fail_then_each_but_the_last_is_a_retry() -> None:
    told: list[BaseException] = []

    def read() -> None:
        raise OSError("gone")

    patience = Patience(tries=3, first_wait_s=0.001)
    with pytest.raises(UnavailableError, match="after 3 tries"):
        patience.call(read, place="shard 0", stopped=threading.Event(), on_retry=told.append)
    assert len(told) == 2


def test_report_when_little_is_new_then_that_alone_is_told_and_now_and_then_all() -> None:
    meters = {source: ReadMeter() for source in range(3)}
    reporter = SourceReporter("run")
    first = reporter.report(meters, now_s=100)
    assert first is not None
    assert first.source == [0, 1, 2]
    assert reporter.report(meters, now_s=101) is None
    meters[1].read(0.5, 7)
    second = reporter.report(meters, now_s=102)
    assert second is not None
    assert (second.source, second.reads, second.p50_ms, second.read_bytes) == ([1], [1], [500.0], [7])
    again = reporter.report(meters, now_s=111)
    assert again is not None
    assert again.source == [0, 1, 2]


def test_worker_clock_when_the_budget_is_full_then_free_workers_are_blocked_else_idle() -> None:
    is_full = [False]
    clock = WorkerClock(2, lambda: 0.0, lambda: is_full[0])
    idle = clock.read()
    is_full[0] = True
    blocked = clock.read()
    assert idle[IDLE] > 0
    assert idle[BLOCKED] == idle[BUSY] == 0
    assert blocked[BLOCKED] > 0
    assert blocked[IDLE] == idle[IDLE]
