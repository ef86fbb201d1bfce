"""The pool: urgent first, otherwise in order, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest

from loadmaster_flight.loader.pool import WorkerPool

DEADLINE_S = 20


class Gate:
    """Holds the pool's only thread until it is opened; calls note their name when they run."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool, self.ran = pool, list[str]()
        self._is_shut, self._open = threading.Event(), threading.Event()
        self._first = pool.submit(self._wait, is_urgent=True)
        assert self._is_shut.wait(DEADLINE_S)

    def submit(self, name: str, *, is_urgent: bool) -> Future[None]:
        return self.pool.submit(lambda: self.ran.append(name), is_urgent=is_urgent)

    def open(self) -> None:
        self._open.set()

    def _wait(self) -> None:
        self._is_shut.set()
        assert self._open.wait(DEADLINE_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    pool = WorkerPool(1, "test")
    gate = Gate(pool)
    yield gate
    gate.open()
    pool.close()


def test_submit_when_calls_wait_then_urgent_ones_run_first_and_each_kind_in_order(gate: Gate) -> None:
    futures = [gate.submit(name, is_urgent=name in "BD") for name in "ABCDE"]
    gate.open()
    wait(futures, DEADLINE_S)
    assert "".join(gate.ran) == "BDACE"


def test_hasten_when_a_call_waits_then_it_is_urgent_from_now_on(gate: Gate) -> None:
    futures = {name: gate.submit(name, is_urgent=name == "C") for name in "ABC"}
    gate.pool.hasten(futures["B"])
    gate.pool.hasten(futures["C"])
    gate.open()
    wait(futures.values(), DEADLINE_S)
    assert "".join(gate.ran) == "CBA"


def test_hasten_when_a_call_is_over_then_it_does_not_run_again(gate: Gate) -> None:
    future = gate.submit("A", is_urgent=False)
    gate.open()
    future.result(DEADLINE_S)
    gate.pool.hasten(future)
    gate.submit("B", is_urgent=False).result(DEADLINE_S)
    assert gate.ran == ["A", "B"]


def test_call_when_it_fails_then_its_future_says_so_and_the_thread_lives(gate: Gate) -> None:
    gate.open()
    failing = gate.pool.submit(lambda: 1 // 0, is_urgent=True)
    with pytest.raises(ZeroDivisionError):
        failing.result(DEADLINE_S)
    gate.submit("A", is_urgent=True).result(DEADLINE_S)


def test_close_when_calls_wait_then_they_are_cancelled_and_whoever_waits_hears_of_it() -> None:
    pool = WorkerPool(1, "test")
    gate = Gate(pool)
    waiting = [gate.submit(name, is_urgent=name == "B") for name in "AB"]
    closing = threading.Thread(target=pool.close)
    closing.start()
    done, _ = wait(waiting, DEADLINE_S)
    assert done == set(waiting)
    assert all(future.cancelled() for future in waiting)
    gate.open()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        gate.submit("C", is_urgent=True)
