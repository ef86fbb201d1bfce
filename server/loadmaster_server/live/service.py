"""The read models and the events as one object."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from loadmaster_flight.wire.control import ActorView, RunView, StreamView
from loadmaster_flight.wire.stages import StageClock

from ..store import GenerationKey, GenerationRecord, GenerationState, Store, StreamKey
from ..store.steps import StepRepository
from .balance import BalanceModel
from .changes import RunsFeed, StreamFeed
from .checkpoints import CheckpointModel
from .event_stream import EventStream
from .graph import GraphModel
from .hub import EventHub, Topic
from .mesh import MeshModel
from .overview import OverviewModel
from .pace import WINDOW_S
from .sources import SourceModel
from .stages import planner_name
from .step_log import StepLog
from .ticker import Feed, Ticker
from .watch import LiveWatch

FORGET_SAMPLES = 150
"""Streams that are not there any more are forgotten every so many samples."""


class Views(Protocol):
    """How runs and streams stand, as `RunService` says it."""

    def views(self) -> list[RunView]: ...

    def view(self, run: str) -> RunView: ...

    def stream_view(self, key: StreamKey) -> StreamView: ...

    def waiting_text(self, key: StreamKey, generation: GenerationRecord | None) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a planner has besides its store.

    Attributes:
        views: How runs stand.
        actors: Who is alive.
        waited_for: Whom the ranks of a generation wait for; empty: nobody.
        clocks: How plan loops spend their time.
    """

    views: Views
    actors: Callable[[], list[ActorView]]
    waited_for: Callable[[GenerationKey], str]
    clocks: Callable[[], Mapping[StreamKey, StageClock]]


class LiveService:
    """What the console's screens read. Any thread may call it; `start` once, `close` in the end.

    Args:
        store: The truth.
        watch: What heartbeats told.
        around: The other services of the planner.
    """

    def __init__(self, store: Store, watch: LiveWatch, around: Around) -> None:
        self._store, self._watch, self._around = store, watch, around
        self._steps = StepRepository(store.database)
        self.log = self._log = StepLog(store, self._steps)
        self.sources = SourceModel(store, self._log, watch)
        self.checkpoints = CheckpointModel(store, self._steps)
        self.balance = BalanceModel(store, self._log)
        self.mesh = MeshModel(store, self._log, watch)
        self.graph = GraphModel(store, self._log, watch, self.sources, around.actors)
        self.overview = OverviewModel(
            store, self._log, watch, self.sources, self.checkpoints, streams=around.views.stream_view,
            actors=around.actors,
        )  # fmt: skip
        self._num_samples = 0
        self._hub = EventHub()
        self._ticker = Ticker(self._hub, self.open_feed, self._sample)

    def start(self) -> None:
        """Begin to look at what changes."""
        self._ticker.start()

    def end_waits(self) -> None:
        """End all event streams at once, from now on. Idempotent."""
        self._hub.close()

    def close(self) -> None:
        """End event streams and the thread. Idempotent."""
        self.end_waits()
        self._ticker.close()

    def check(self, topic: Topic) -> None:
        """Refuse to tell of what there is not.

        Raises:
            NotFoundError: No such run or stream.
        """
        if topic.run is not None:
            self._store.generations.newest(StreamKey(run=topic.run, stream=topic.stream))

    def subscribe(self, topic: Topic) -> EventStream:
        """Open an event stream; called by the event loop. `prepare` it before it is answered.

        Raises:
            UnavailableError: The planner stops, or there are too many.
        """
        return EventStream(self._hub, self._hub.subscribe(topic))

    def prepare(self, topic: Topic) -> None:
        """From now on changes are told to whoever is connected about the topic."""
        self._ticker.prepare(topic)

    def stats(self) -> dict[str, float]:
        """For people."""
        return self._hub.stats() | {"live_failures": float(self._ticker.num_failures)}

    def open_feed(self, topic: Topic) -> Feed:
        """What tells of changes about a topic."""
        if topic.run is None:
            return RunsFeed(self._store, self._around.views.views)
        return StreamFeed(
            StreamKey(run=topic.run, stream=topic.stream),
            store=self._store,
            steps=self._steps,
            log=self._log,
            watch=self._watch,
            sources=self.sources,
            run_view=self._around.views.view,
            waiting=self._around.views.waiting_text,
            actors=self._around.actors,
            window_s=WINDOW_S,
        )

    def _sample(self) -> None:
        """What nobody reports: plan loops' time, and who waits."""
        clocks = self._around.clocks()
        for key, clock in clocks.items():
            self._watch.loads.note(planner_name(key), clock.read())
        self._watch.keep(self._around.actors(), [planner_name(key) for key in clocks])
        at = time.time()
        if self._num_samples % FORGET_SAMPLES == 0:
            self._watch.keep_streams({generation.key.stream_key for generation in self._store.generations.current()})
        self._num_samples += 1
        for generation in self._store.generations.live():
            key, is_open = generation.key.stream_key, generation.state is GenerationState.OPEN
            text = generation.reason or (self._around.waited_for(generation.key) if is_open else "")
            self._watch.stalls.note(key, text, generation.acknowledged, at=at)
