"""Everything that is known of a running planner's world and is not in its store: fed by heartbeats, read by screens."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from loadmaster_flight.wire.control import ActorView, HeartbeatRequest, Role

from ..store import ActorRecord, GenerationKey, StreamKey
from .loads import Loads
from .pace import Pace
from .ranks import RankBoards
from .source_board import SourceBoard

MAX_STALLS = 32
STALL_S = 2.0
"""Waiting that ends sooner is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRecord:
    """A time in which a stream waited. Seconds since 1970; `until_at` is None while it does."""

    from_at: float
    until_at: float | None
    step: int
    text: str


class Stalls:
    """Remembers when streams waited, and for whom. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._past: dict[StreamKey, deque[StallRecord]] = {}
        self._now: dict[StreamKey, StallRecord] = {}

    def note(self, key: StreamKey, text: str, step: int, *, at: float | None = None) -> None:
        """Say what a stream waits for; empty: nothing."""
        at = time.time() if at is None else at
        with self._lock:
            current = self._now.get(key)
            if text and current is not None and current.step == step:
                self._now[key] = replace(current, text=text)
                return
            if current is not None:
                del self._now[key]
                if at - current.from_at >= STALL_S:
                    past = self._past.setdefault(key, deque(maxlen=MAX_STALLS))
                    past.appendleft(replace(current, until_at=at))
            if text:
                self._now[key] = StallRecord(from_at=at, until_at=None, step=step, text=text)

    def keep(self, streams: Collection[StreamKey]) -> None:
        """Forget all other streams."""
        with self._lock:
            for known in (self._past, self._now):
                for key in known.keys() - set(streams):
                    del known[key]

    def of(self, key: StreamKey, *, at: float | None = None) -> list[StallRecord]:
        """Newest first."""
        at = time.time() if at is None else at
        with self._lock:
            current, past = self._now.get(key), list(self._past.get(key, ()))
        is_long = current is not None and at - current.from_at >= STALL_S
        return ([current] if current is not None and is_long else []) + past


class LiveWatch:
    """What heartbeats told since this planner started. Any thread may use it.

    Attributes:
        since: When the planner started, seconds since 1970.
    """

    def __init__(self) -> None:
        self.since = time.time()
        self.pace, self.ranks, self.loads = Pace(), RankBoards(), Loads()
        self.sources, self.stalls = SourceBoard(), Stalls()
        self._ready: dict[str, dict[StreamKey, int]] = {}

    def hear(self, actor: ActorRecord, request: HeartbeatRequest) -> None:
        """Take a heartbeat in; never blocks."""
        self.loads.note(actor.actor_id, request.stats)
        if actor.role == Role.CONSTRUCTOR:
            self.ranks.note(request.acknowledged)
            self._ready[actor.actor_id] = {
                StreamKey(run=word.run, stream=word.stream): word.steps_ready for word in request.acknowledged
            }
        else:
            self.sources.note(actor.number, request.sources)

    def acknowledged(self, key: GenerationKey, step: int) -> None:
        """All ranks of a generation have acknowledged the steps before `step`."""
        self.pace.note(key, step)

    def steps_ready(self, actor: str, key: StreamKey) -> int | None:
        """Steps that a constructor has built for its ranks; None where it does not serve the stream."""
        return self._ready.get(actor, {}).get(key)

    def keep(self, actors: Sequence[ActorView], planners: Sequence[str]) -> None:
        """Forget who has gone."""
        names = [actor.actor_id for actor in actors]
        self.loads.keep([*names, *planners])
        for name in self._ready.keys() - set(names):
            self._ready.pop(name, None)
        self.sources.keep(int(actor.actor_id.rsplit("-", 1)[1]) for actor in actors)

    def keep_streams(self, streams: Collection[StreamKey]) -> None:
        """Forget all others."""
        self.pace.keep(streams)
        self.ranks.keep(streams)
        self.stalls.keep(streams)
