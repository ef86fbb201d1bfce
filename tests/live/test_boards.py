"""Loads of stages and reads of sources, from what heartbeats count."""

from __future__ import annotations

import pytest

from loadmaster_flight.wire.control import SourceReport
from loadmaster_server.live.loads import Loads
from loadmaster_server.live.source_board import SourceBoard
from loadmaster_server.live.watch import Stalls
from loadmaster_server.store import StreamKey

KEY = StreamKey(run="run", stream="train")


def seconds(busy: float, blocked: float, idle: float) -> dict[str, float]:
    return {"busy_s": busy, "blocked_s": blocked, "idle_s": idle}


def test_load_when_told_twice_then_it_is_what_happened_between() -> None:
    loads = Loads()
    loads.note("loader-1", seconds(100, 50, 50), now_s=10)
    assert loads.load("loader-1") is None
    loads.note("loader-1", seconds(103, 51, 56), now_s=20)
    load = loads.load("loader-1")
    assert load is not None
    assert (load.busy, load.blocked, load.idle, load.window_s) == (0.3, 0.1, 0.6, 10)


def test_load_when_told_for_long_then_only_the_window_counts() -> None:
    loads = Loads()
    for second in range(300):
        loads.note("loader-1", seconds(min(second, 200), 0, max(0, second - 200)), now_s=second)
    load = loads.load("loader-1")
    assert load is not None
    assert load.idle == 1
    assert load.window_s == pytest.approx(60, abs=3)


def test_load_when_a_process_counts_anew_then_it_begins_anew() -> None:
    loads = Loads()
    loads.note("loader-1", seconds(100, 0, 0), now_s=10)
    loads.note("loader-1", seconds(1, 0, 0), now_s=20)
    assert loads.load("loader-1") is None


def test_load_when_a_process_does_not_count_then_it_is_unknown() -> None:
    loads = Loads()
    loads.note("loader-1", {"steps": 3.0}, now_s=10)
    loads.note("loader-1", {"steps": 9.0}, now_s=20)
    assert loads.load("loader-1") is None


def report(source: int, **changes: object) -> SourceReport:
    columns: dict[str, object] = {
        "reads": 1, "read_bytes": 1, "p50_ms": 1.0, "p99_ms": 2.0, "errors": 0, "retries": 0,
        "last_error": "", "last_error_s": -1.0, "is_failing": False,
    }  # fmt: skip
    lists = {name: [value] for name, value in (columns | changes).items()}
    return SourceReport(run="run", source=[source], **lists)  # type: ignore[arg-type]


def test_reads_when_two_loaders_have_a_source_then_counts_add_and_times_are_the_longer() -> None:
    board = SourceBoard()
    board.note(1, [report(0, reads=10, p99_ms=5.0)], now_s=100)
    board.note(2, [report(0, reads=5, p99_ms=50.0, retries=2, last_error="503", last_error_s=1.0)], now_s=100)
    found = board.reads("run", now_s=103)[0]
    assert (found.reads, found.p99_ms, found.retries, found.last_error) == (15, 50.0, 2, "503")
    assert found.last_error_s == 4.0
    assert found.is_retrying


def test_reads_when_a_loader_goes_then_its_words_go() -> None:
    board = SourceBoard()
    board.note(1, [report(0)], now_s=100)
    board.note(2, [report(1)], now_s=100)
    board.keep([2])
    assert list(board.reads("run")) == [1]


def test_stalls_when_waiting_is_short_then_it_is_none() -> None:
    stalls = Stalls()
    stalls.note(KEY, "rank 3", 7, at=100)
    stalls.note(KEY, "", 7, at=101)
    assert stalls.of(KEY, at=110) == []


def test_stalls_when_waiting_lasts_then_it_is_remembered_with_its_end() -> None:
    stalls = Stalls()
    stalls.note(KEY, "rank 3", 7, at=100)
    stalls.note(KEY, "rank 3 and 4", 7, at=105)
    assert [(s.from_at, s.until_at, s.text) for s in stalls.of(KEY, at=106)] == [(100, None, "rank 3 and 4")]
    stalls.note(KEY, "", 8, at=110)
    assert [(s.from_at, s.until_at, s.step) for s in stalls.of(KEY, at=111)] == [(100, 110, 7)]
