"""The thread that looks at what changes: what it found is told, whatever happens after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from loadmaster_flight.wire.errors import UnavailableError
from loadmaster_server.live.event_schemas import RunEvent
from loadmaster_server.live.hub import EventHub, Topic
from loadmaster_server.live.schemas import LiveModel
from loadmaster_server.live.ticker import SAMPLE_TICKS, Ticker

TOPIC = Topic("run", "train")


class FailingFeed:
    """Has news at its second tick, and finds the store away right after it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def tick(self, number: int) -> Iterator[tuple[str, LiveModel]]:
        self.numbers.append(number)
        if number == 1:
            yield "run", RunEvent(run="run", state="paused", reason="bad rows", revision=0)
            raise UnavailableError("the store is busy")


def test_tick_when_the_store_fails_in_the_middle_then_what_was_found_is_told_and_it_goes_on() -> None:
    hub, feed = EventHub(), FailingFeed()
    ticker = Ticker(hub, lambda _: feed, lambda: None)

    async def read() -> list[bytes]:
        subscriber = hub.subscribe(TOPIC)
        ticker.prepare(TOPIC)
        for _ in range(3):
            ticker.tick()
        return (await subscriber.take(5.0))[0]

    with ThreadPoolExecutor(1) as pool:  # a browser test in this process leaves its own loop running
        frames = pool.submit(asyncio.run, read()).result()
    assert [b"bad rows" in frame for frame in frames] == [True]
    assert (feed.numbers, ticker.num_failures) == ([0, 1, 2, 3], 1)


def test_sample_when_nobody_is_connected_then_taken_every_so_many_ticks() -> None:
    samples: list[int] = []
    ticker = Ticker(EventHub(), lambda _: FailingFeed(), lambda: samples.append(1))
    for _ in range(2 * SAMPLE_TICKS):
        ticker.tick()
    assert len(samples) == 2
