"""A stream of batches as a training loop sees it."""

from __future__ import annotations

import operator
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.skipping import Skip

from .batch import Batch, to_batch
from .feed import BatchFeed, FeedItem, JoinOptions
from .forking import ForkGuard
from .tensors import Framework

STATE_KEYS = ("run", "stream", "generation", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStats:
    """What the training loop has waited for. `wait_ms` is of the last step, the rest are sums."""

    num_steps: int = 0
    num_tokens: int = 0
    wait_ms: float = 0.0
    total_wait_ms: float = 0.0


class Stream:
    """An iterator over the batches of one rank. Close it, or use `with`. One thread iterates; any may close.

    Joining begins with the first `next()` or with `start()`. A batch counts as consumed when the one after it is asked
    for, so one that was handed out and not trained on is not lost.

    Args:
        options: What to join; `load_state` replaces its step.
        open_feed: Opens where batches come from.
        framework: TORCH or NUMPY.
    """

    def __init__(
        self, options: JoinOptions, *, open_feed: Callable[[JoinOptions], BatchFeed], framework: Framework
    ) -> None:
        self._options, self._open_feed, self._framework = options, open_feed, framework
        self._guard = ForkGuard()
        self._feed: BatchFeed | None = None
        self._next_step = options.step
        self._has_handed_out, self._is_closed = False, False
        self._stats, self._wait_s, self._last_wait_s = StreamStats(), 0.0, 0.0

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            StopIteration: The stream is over, on every rank at the same step.
            DeadlineError: It did not come in time; names rank, step and what is missing. May be called again.
            LoadmasterError: It will not come.
        """
        feed = self._opened()
        if self._has_handed_out:
            feed.acknowledge(self._next_step, wait_s=self._last_wait_s)
        start_s = time.perf_counter()
        item = self._await_step(feed)
        if item is None:
            raise StopIteration
        self._last_wait_s, self._wait_s = self._wait_s, 0.0
        batch = self._to_batch(feed, item)
        self._next_step, self._has_handed_out = item.step + 1, True
        self._count(batch, 1e3 * (time.perf_counter() - start_s))
        return batch

    def _await_step(self, feed: BatchFeed) -> FeedItem | None:
        """Wait for the next step. What joining takes is no wait for data; what a deadline cut off is."""
        _ = feed.info
        start_s = time.perf_counter()
        try:
            return feed.next_step()
        finally:
            self._wait_s += time.perf_counter() - start_s

    def start(self) -> None:
        """Join and fetch ahead from now on, without waiting for it."""
        self._opened()

    @property
    def source_names(self) -> list[str]:
        """Names of the sources, in the order of `Documents.source`. Waits for joining."""
        return list(self._opened().info.source_names)

    @property
    def coords(self) -> dict[str, int]:
        """This rank's mesh coordinates as the planner has them. Waits for joining."""
        return dict(self._opened().info.coords)

    @property
    def stats(self) -> StreamStats:
        """Steps, tokens and waiting time so far."""
        return self._stats

    def state_dict(self) -> dict[str, Any]:
        """Where the next batch to be consumed is: put it into the checkpoint of the step just trained.

        It names one step of all ranks; what each has prefetched makes no difference. Waits for joining if it has begun.
        """
        feed = self._feed
        if feed is None:
            return self._state(self._options.run, self._options.parent, self._options.step, self._options.skip)
        info = feed.info
        step = self._next_step if self._has_handed_out else info.first_step
        return self._state(feed.run, info.generation, step, info.skip)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a `state_dict` was taken. Before the first batch, on every rank alike.

        Raises:
            BadRequestError: Something was fetched already, or the state is of another run or stream.
        """
        if self._feed is not None:
            raise BadRequestError("load_state_dict must be called before the first batch is fetched")
        self._options = with_state(self._options, state)
        self._next_step = self._options.step

    def through(self, wrap: Callable[[BatchFeed], BatchFeed]) -> Stream:
        """The same stream with its batches passing through a wrapper of where they come from. Before the first batch.

        Raises:
            BadRequestError: Something was fetched already.
        """
        if self._feed is not None:
            raise BadRequestError("a stream must be wrapped before its first batch is fetched")
        inner = self._open_feed
        return Stream(self._options, open_feed=lambda options: wrap(inner(options)), framework=self._framework)

    def close(self) -> None:
        """End fetching. Idempotent; takes at most a few seconds.

        The other ranks learn that this one closed its stream. Without it the stream is closed when it is no longer
        referred to, and at the end of the process.
        """
        self._close(in_peace=True)

    def _close(self, *, in_peace: bool) -> None:
        self._is_closed = True
        if self._feed is not None and not self._guard.is_child:
            self._feed.close(in_peace=in_peace)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(in_peace=kind is None)

    def _opened(self) -> BatchFeed:
        self._guard.check()
        if self._is_closed:
            raise BadRequestError("the stream is closed")
        if self._feed is None:
            self._feed = self._open_feed(self._options)
            weakref.finalize(self, _close_lost, self._feed, self._guard)
        return self._feed

    def _to_batch(self, feed: BatchFeed, item: FeedItem) -> Batch:
        info = feed.info
        last = int(item.batch.column("doc_source").values.to_numpy(zero_copy_only=False).max(initial=0))
        is_known = last < len(info.source_names)
        return to_batch(
            item.batch,
            step=item.step,
            source_names=info.source_names if is_known else feed.source_names(last + 1),
            num_rows=info.rows,
            framework=self._framework,
        )

    def _count(self, batch: Batch, wait_ms: float) -> None:
        old = self._stats
        self._stats = StreamStats(
            num_steps=old.num_steps + 1,
            num_tokens=old.num_tokens + batch.num_tokens,
            wait_ms=wait_ms,
            total_wait_ms=old.total_wait_ms + wait_ms,
        )

    def _state(self, run: str | None, generation: int, step: int, skip: Sequence[int]) -> dict[str, Any]:
        state = {"run": run, "stream": self._options.stream, "generation": generation, "step": step}
        return {**state, "skip": list(skip)} if skip and step < skip[1] else state


def _close_lost(feed: BatchFeed, guard: ForkGuard) -> None:
    """Nobody closed the stream: it was let go of, or the process ends. Threads inside Flight must be gone by then."""
    if not guard.is_child:
        feed.close(in_peace=False)


def with_state(options: JoinOptions, state: Mapping[str, Any]) -> JoinOptions:
    """The options to go on from a saved state.

    Raises:
        BadRequestError: A key is missing, or the state is of another run or stream.
    """
    missing = [key for key in STATE_KEYS if key not in state]
    if missing:
        raise BadRequestError(f"state must have the keys {', '.join(STATE_KEYS)}; missing {', '.join(missing)}")
    if state["stream"] != options.stream:
        raise BadRequestError(f"state must be of stream {options.stream!r}, got {state['stream']!r}")
    if options.run is not None and state["run"] not in (None, options.run):
        raise BadRequestError(f"state must be of run {options.run!r}, got {state['run']!r}")
    step, parent = _whole(state, "step"), _whole(state, "generation")
    skip = checked_skip(state.get("skip", ()), step)
    return replace(options, run=options.run or state["run"], step=step, parent=parent, skip=skip)


def checked_skip(skip: Sequence[int], step: int) -> list[int]:
    """What to leave out when going on at a step, as a list.

    Raises:
        BadRequestError: It is not two rising steps, or begins before that step.
    """
    steps = Skip.of(list(skip)).as_list()
    if steps and steps[0] < step:
        raise BadRequestError(f"skip must begin at the step to go on at, {step}, or after it, got {tuple(steps)}")
    return steps


def _whole(state: Mapping[str, Any], key: str) -> int:
    try:
        return operator.index(state[key])
    except TypeError:
        raise BadRequestError(f"{key} of a state must be a whole number, got {state[key]!r}") from None
