"""GET /events as server-sent events: an answer that lasts, on the event loop alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from .event_schemas import HelloEvent
from .hub import EventHub, Subscriber

HEARTBEAT_S = 5.0
RETRY_MS = 1000
"""How soon a browser connects again."""
LIFE_S = 300.0
"""A stream ends after so long; who connects again is asked again who it is."""
BEAT = b": beat\n\n"


class EventStream(StreamingResponse):
    """The events of one subscriber until it goes, or the planner stops."""

    media_type = "text/event-stream"

    def __init__(self, hub: EventHub, subscriber: Subscriber) -> None:
        self._hub, self._subscriber = hub, subscriber
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(_frames(hub, subscriber), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer until the end; whoever goes in the middle of a frame is let go too."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """It is not answered, or not any more. Idempotent."""
        self._hub.leave(self._subscriber)


async def _frames(hub: EventHub, subscriber: Subscriber) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MS}\n".encode() + hub.frame("hello", _hello(hub, subscriber))
    until_s = time.monotonic() + LIFE_S
    while time.monotonic() < until_s:
        frames, dropped = await subscriber.take(HEARTBEAT_S)
        if dropped:
            yield hub.resync(dropped)
        if frames:
            yield b"".join(frames)
        elif not dropped and subscriber.is_closed:  # what was told before the end is taken
            return
        elif not dropped:
            yield BEAT


def _hello(hub: EventHub, subscriber: Subscriber) -> HelloEvent:
    return HelloEvent(
        epoch=hub.epoch,
        server_at=time.time(),
        heartbeat_s=HEARTBEAT_S,
        run=subscriber.topic.run,
        stream=subscriber.topic.stream,
    )
