"""Threads that do what is urgent first."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerPool:
    """Runs calls in threads: the urgent ones first, those of a kind in the order they came. For any number of threads.

    Args:
        num_threads: They start with the pool, and do not keep the process alive.
        name: Of the threads.
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self._changed = threading.Condition()
        self._urgent: OrderedDict[Future[Any], Callable[[], Any]] = OrderedDict()
        self._later: OrderedDict[Future[Any], Callable[[], Any]] = OrderedDict()
        self._is_closed = False
        self._busy_s, self._begun = 0.0, dict[int, float]()
        names = (f"{name}-{i}" for i in range(num_threads))
        self._threads = [threading.Thread(target=self._work, name=each, daemon=True) for each in names]
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[[], T], *, is_urgent: bool) -> Future[T]:
        """Have a call run.

        Raises:
            RuntimeError: The pool is closed.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the pool is closed")
            (self._urgent if is_urgent else self._later)[future] = call
            self._changed.notify()
        return future

    @property
    def busy_s(self) -> float:
        """Seconds that the threads have worked, all together, running calls included."""
        with self._changed:
            now_s = time.monotonic()
            return self._busy_s + sum(now_s - begun_s for begun_s in self._begun.values())

    def hasten(self, future: Future[Any]) -> None:
        """Somebody needs this now: if it still waits, it waits with the urgent ones."""
        with self._changed:
            call = self._later.pop(future, None)
            if call is not None:
                self._urgent[future] = call

    def close(self) -> None:
        """Let running calls end and cancel those that wait. Idempotent."""
        with self._changed:
            self._is_closed = True
            waiting = [*self._urgent, *self._later]
            self._urgent.clear()
            self._later.clear()
            self._changed.notify_all()
        for future in waiting:
            future.cancel()
            future.set_running_or_notify_cancel()  # or who waits for several at once would not hear of it
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                _run(future, call)
            self._note_end()
            del job, future, call  # what a call was about is not kept while waiting for the next one

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._changed:
            while not self._is_closed:
                for queue in (self._urgent, self._later):
                    if queue:
                        self._begun[threading.get_ident()] = time.monotonic()
                        return queue.popitem(last=False)
                self._changed.wait()
        return None

    def _note_end(self) -> None:
        with self._changed:
            self._busy_s += time.monotonic() - self._begun.pop(threading.get_ident())


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
