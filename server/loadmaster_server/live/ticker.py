"""One thread that looks twice a second at what somebody is connected about, and publishes what changed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from loadmaster_flight.wire.errors import LoadmasterError, NotFoundError

from .hub import EventHub, Topic
from .schemas import LiveModel

LOG = logging.getLogger(__name__)
TICK_S = 0.5
SAMPLE_TICKS = 4
"""What nobody reports is looked at every so many ticks, whether or not anybody is connected."""


class Feed(Protocol):
    """The events of one topic."""

    def tick(self, number: int) -> Iterator[tuple[str, LiveModel]]:
        """What changed since the tick before."""
        ...


class Ticker:
    """Runs the feeds of the topics that have readers. `start` once, `close` in the end.

    Args:
        hub: Who is connected.
        open_feed: Makes the feed of a topic.
        on_sample: Called every `SAMPLE_TICKS`.
    """

    def __init__(self, hub: EventHub, open_feed: Callable[[Topic], Feed], on_sample: Callable[[], None]) -> None:
        self._hub, self._open_feed, self._on_sample = hub, open_feed, on_sample
        self._feeds: dict[Topic, tuple[Feed, int]] = {}
        self._looking = threading.Lock()
        self.num_failures = self._num_ticks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def prepare(self, topic: Topic) -> None:
        """See how things are now, so that whatever changes from now on is told to who is connected about the topic.

        Raises:
            NotFoundError: There is no such run or stream.
        """
        with self._looking:
            if topic not in self._feeds:
                self._look(topic)

    def tick(self) -> None:
        """Look once at everything."""
        if self._num_ticks % SAMPLE_TICKS == 0:
            self._guarded(self._on_sample, "sampling")
        self._num_ticks += 1
        with self._looking:
            topics = self._hub.topics  # whoever prepares a feed was subscribed before
            for topic in self._feeds.keys() - topics:
                del self._feeds[topic]
        for topic in topics:
            self._guarded(partial(self._locked_look, topic), f"events of {topic}")

    def _locked_look(self, topic: Topic) -> None:
        with self._looking:
            self._look(topic)

    def _look(self, topic: Topic) -> None:
        known = self._feeds.get(topic)
        feed, number = known if known is not None else (self._open_feed(topic), 0)
        self._feeds[topic] = feed, number + 1
        for name, event in feed.tick(number):  # each as it is found: a feed does not tell twice
            self._hub.publish(topic, name, event)

    def _guarded(self, call: Callable[[], None], what: str) -> None:
        """A store that is busy must not end the thread: what is missed now is told at the next tick."""
        try:
            call()
        except NotFoundError:
            pass  # the run was deleted, or there is no such run yet
        except LoadmasterError as error:
            self.num_failures += 1
            LOG.warning("%s: %s", what, error)
        except Exception:
            self.num_failures += 1
            LOG.exception("%s failed", what)

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            self.tick()
