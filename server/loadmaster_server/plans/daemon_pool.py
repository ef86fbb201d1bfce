"""Worker threads that never keep the process alive: a Flight call in progress cannot be cancelled from outside."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class DaemonPool(Generic[A, R]):
    """Runs one function on many arguments at once, in daemon threads (those of concurrent.futures are not).

    Args:
        function: What to run.
        num_workers: Threads; they start with the first `map`.
        name: Of the threads.
    """

    def __init__(self, function: Callable[[A], R], *, num_workers: int, name: str) -> None:
        self._function, self._num_workers, self._name = function, num_workers, name
        self._jobs: queue.SimpleQueue[tuple[A, Future[R]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def map(self, arguments: Iterable[A]) -> Iterator[R]:
        """Results in the order of the arguments. The first failure in that order is raised; the others still run."""
        self._start()
        futures: list[Future[R]] = []
        for argument in arguments:
            future: Future[R] = Future()
            futures.append(future)
            self._jobs.put((argument, future))
        for future in futures:
            yield future.result()

    def close(self) -> None:
        """Let the threads end after what they are at. Does not wait. Idempotent."""
        for _ in self._threads:
            self._jobs.put(None)

    def _start(self) -> None:
        while len(self._threads) < self._num_workers:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        job: Any
        while (job := self._jobs.get()) is not None:
            argument, future = job
            try:
                future.set_result(self._function(argument))
            except BaseException as error:
                future.set_exception(error)
