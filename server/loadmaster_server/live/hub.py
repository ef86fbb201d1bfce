"""Hands events to whoever is connected: encoded once, bounded for each, without a thread for any."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from dataclasses import dataclass

from loadmaster_flight.wire.errors import UnavailableError

from .event_schemas import ResyncEvent
from .schemas import LiveModel

MAX_SUBSCRIBERS = 512
MAX_QUEUED = 512
MAX_QUEUED_BYTES = 1 << 20
"""What waits for one reader; with more it is told to read everything again."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What a connection is about; without a run: all runs."""

    run: str | None
    stream: str


class Subscriber:
    """One connection. Its event loop calls `take`; the hub's other methods may be called by any thread."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.is_closed = False
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self._lock = threading.Lock()
        self._frames: deque[bytes] = deque()
        self._num_bytes, self._num_dropped = 0, 0

    async def take(self, timeout_s: float) -> tuple[list[bytes], int]:
        """What has come since, and how many events were dropped before it; nothing when time is up, or at the end."""
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return [], 0
        with self._lock:
            frames, dropped = list(self._frames), self._num_dropped
            self._frames.clear()
            self._num_bytes = self._num_dropped = 0
            self._news.clear()
            if self.is_closed:
                self._news.set()
        return frames, dropped

    def put(self, frame: bytes) -> int:
        """Queue a frame; returns how many had to be dropped because nobody takes them."""
        with self._lock:
            if self.is_closed:
                return 0
            dropped = 0
            if len(self._frames) >= MAX_QUEUED or self._num_bytes + len(frame) > MAX_QUEUED_BYTES:
                dropped = len(self._frames) + 1
                self._frames.clear()
                self._num_bytes, self._num_dropped = 0, self._num_dropped + dropped
            else:
                self._frames.append(frame)
                self._num_bytes += len(frame)
        self._wake()
        return dropped

    def close(self) -> None:
        """End the connection when it has taken what is queued. Idempotent."""
        with self._lock:
            self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            self.is_closed = True  # the loop is gone, and with it whoever read


class EventHub:
    """All connections. Any thread may call it but `subscribe`, which is the event loop's.

    Attributes:
        epoch: A word of this planner's life; ids of events begin with it.
    """

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._subscribers: set[Subscriber] = set()
        self._number, self._num_dropped, self._num_sent = 0, 0, 0
        self._is_closed = False

    def subscribe(self, topic: Topic) -> Subscriber:
        """Take a connection in.

        Raises:
            UnavailableError: The planner stops, or there are too many.
        """
        with self._lock:
            if self._is_closed:
                raise UnavailableError("the planner is stopping")
            if len(self._subscribers) >= MAX_SUBSCRIBERS:
                raise UnavailableError(f"{MAX_SUBSCRIBERS} event streams are open: no more are served at once")
            subscriber = Subscriber(topic)
            self._subscribers.add(subscriber)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """A connection has ended. Idempotent."""
        with self._lock:
            self._subscribers.discard(subscriber)

    @property
    def topics(self) -> set[Topic]:
        """What anybody is connected about."""
        with self._lock:
            return {subscriber.topic for subscriber in self._subscribers}

    def publish(self, topic: Topic, name: str, event: LiveModel) -> None:
        """Send an event to all who are connected about a topic."""
        frame = self.frame(name, event)
        with self._lock:
            readers = [subscriber for subscriber in self._subscribers if subscriber.topic == topic]
        dropped = sum(subscriber.put(frame) for subscriber in readers)
        with self._lock:
            self._num_sent += len(readers)
            self._num_dropped += dropped

    def frame(self, name: str, event: LiveModel) -> bytes:
        """An event as it goes over the wire, with an id of its own."""
        with self._lock:
            self._number += 1
            number = self._number
        return f"id: {self.epoch}-{number}\nevent: {name}\ndata: {event.model_dump_json()}\n\n".encode()

    def resync(self, dropped: int) -> bytes:
        """The frame for a reader that has missed events."""
        return self.frame("resync", ResyncEvent(dropped=dropped))

    def stats(self) -> dict[str, float]:
        """For people."""
        with self._lock:
            return {
                "event_streams": float(len(self._subscribers)),
                "events_sent": float(self._num_sent),
                "events_dropped": float(self._num_dropped),
            }

    def close(self) -> None:
        """End all connections, now and from now on. Idempotent."""
        with self._lock:
            self._is_closed = True
            subscribers, self._subscribers = self._subscribers, set()
        for subscriber in subscribers:
            subscriber.close()
