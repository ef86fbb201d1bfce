"""All streams that one constructor serves, kept equal to what the planner wants."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from loadmaster_flight.wire.control import Assignment, HeartbeatReply, StreamProgress
from loadmaster_flight.wire.errors import (
    ForbiddenError,
    GoneError,
    LoadmasterError,
    MovedError,
    NotReadyError,
    UnavailableError,
)
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.stages import BLOCKED, BUSY, IDLE
from loadmaster_flight.wire.tickets import RankTicket
from loadmaster_flight.wire.tls import Tls

from .builder import StreamBuilder
from .gather import Report

JOIN_S = 2.0


class ConstructorEngine:
    """One builder for each (run, stream) assigned. Methods may be called by any thread.

    Args:
        planner: Where definitions and plans come from.
        ticket_key: Gives the key that tickets to loaders are signed with.
        on_advance: Called when the planner should hear of new acknowledgements soon, or we of what to serve.
        on_unreachable: Called when a loader could not be reached, or does not answer.
        tls: How to call loaders; None: what the environment says.
    """

    def __init__(
        self,
        planner: PlannerClient,
        *,
        ticket_key: Callable[[], bytes],
        on_advance: Callable[[], None] = lambda: None,
        on_unreachable: Report = lambda *_: None,
        tls: Tls | None = None,
    ) -> None:
        self._planner, self._ticket_key, self._tls = planner, ticket_key, tls
        self._on_advance, self._on_unreachable = on_advance, on_unreachable
        self._lock = threading.Lock()
        self._builders: dict[tuple[str, str], StreamBuilder] = {}
        self._retired: list[StreamBuilder] = []
        self._parting: list[StreamProgress] = []
        self._num_told = 0
        self._all_told = threading.Event()
        self._all_told.set()
        self._is_closed = False

    def follow(self, desired: HeartbeatReply) -> None:
        """Start, reroute and stop builders until they are the planner's assignments. Returns at once.

        Called with the planner's answer to what `progress` gave last.
        """
        wanted = {(a.run, a.stream): a for a in desired.assignments}
        with self._lock:
            if self._is_closed:
                return
            del self._parting[: self._num_told]
            self._num_told = 0
            for key in list(self._builders):
                self._drop_unless_wanted(key, wanted.get(key))
            for key, assignment in wanted.items():
                self._take(key, assignment)
            self._retired = [b for b in self._retired if b.is_running]
            for word in desired.released:
                builder = self._builders.get((word.run, word.stream))
                if builder is not None and builder.assignment.generation == word.generation:
                    builder.note_awaited(word.status)
            has_parted = bool(self._parting)
            if not has_parted:
                self._all_told.set()
        if has_parted:
            self._on_advance()

    def wait_told(self, timeout_s: float) -> bool:
        """Wait until the planner knows all that ranks acknowledged to builders that are no more."""
        return self._all_told.wait(timeout_s)

    def reader(self, ticket: RankTicket) -> StreamBuilder:
        """The builder that serves a ticket. The planner is asked at once about one that it has not told us of yet.

        Raises:
            GoneError: The ticket is of an older generation.
            NotReadyError: The planner has not told us of this generation yet.
            MovedError: The stream, or this rank of it, is not served here.
            ForbiddenError: The generation has no such rank.
        """
        with self._lock:
            builder = self._builders.get((ticket.run, ticket.stream))
        if builder is None:
            self._on_advance()
            raise _moved(ticket)
        current = builder.assignment.generation
        if ticket.generation < current:
            raise GoneError(
                f"generation {ticket.generation} of run {ticket.run} is over, {current} is current: join again"
            )
        if ticket.generation > current:
            self._on_advance()
            raise NotReadyError(
                f"generation {ticket.generation} of run {ticket.run} has not reached this constructor yet"
            )
        world_size = math.prod(builder.assignment.mesh.values())
        if not 0 <= ticket.rank < world_size:
            raise ForbiddenError(f"rank must be in [0, {world_size}) in run {ticket.run}, got {ticket.rank}")
        if ticket.rank not in builder.assignment.ranks:
            self._on_advance()
            raise _moved(ticket)
        return builder

    def progress(self) -> list[StreamProgress]:
        """What each stream's ranks have acknowledged, for the heartbeat; for the last time of those that have moved."""
        with self._lock:
            parting, self._num_told = list(self._parting), len(self._parting)
        return parting + [builder.progress() for builder in self.builders()]

    def builders(self) -> list[StreamBuilder]:
        """Those of the streams that are served now."""
        with self._lock:
            return list(self._builders.values())

    def stats(self) -> dict[str, float]:
        """Counters for people."""
        builders = self.builders()
        built = [builder.build_times.read() for builder in builders]
        return _together(b.clock.read() for b in builders) | {
            "streams": len(builders),
            "steps_built": sum(times.count for times in built),
            "build_seconds": sum(times.total for times in built),
            "built_bytes": sum(b.size_bytes for b in builders),
            "asked_of_shadows": sum(b.num_instead for b in builders),
        }

    def close(self) -> None:
        """Stop all builders; their readers are told to ask the planner again. Idempotent, at most a few seconds."""
        with self._lock:
            self._is_closed = True
            builders = [*self._builders.values(), *self._retired]
            self._builders, self._retired = {}, []
        for builder in builders:
            builder.close(UnavailableError("this constructor is shutting down"))
        for builder in builders:
            builder.join(JOIN_S)

    def _drop_unless_wanted(self, key: tuple[str, str], wanted: Assignment | None) -> None:
        builder = self._builders[key]
        if wanted is not None and _same_work(builder.assignment, wanted):
            return
        builder.close(_reason(builder.assignment, wanted))
        self._parting.append(builder.progress())
        self._all_told.clear()
        self._retired.append(self._builders.pop(key))

    def _take(self, key: tuple[str, str], assignment: Assignment) -> None:
        if builder := self._builders.get(key):
            if builder.assignment != assignment:
                builder.reroute(assignment)
            return
        self._builders[key] = StreamBuilder(
            assignment,
            planner=self._planner,
            ticket_key=self._ticket_key,
            on_advance=self._on_advance,
            on_unreachable=self._on_unreachable,
            tls=self._tls,
        )


def _moved(ticket: RankTicket) -> MovedError:
    return MovedError(f"rank {ticket.rank} of stream {ticket.stream} of run {ticket.run} is not served here: ask again")


def _same_work(a: Assignment, b: Assignment) -> bool:
    """Whether two assignments differ in loader routes alone."""
    return replace(a, loaders=[], shadows=[]) == replace(b, loaders=[], shadows=[])


def _together(clocks: Iterable[dict[str, float]]) -> dict[str, float]:
    """Seconds of all builders added up: a constructor of two streams has two threads."""
    total = dict.fromkeys((BUSY, BLOCKED, IDLE), 0.0)
    for clock in clocks:
        for kind, seconds in clock.items():
            total[kind] += seconds
    return total


def _reason(old: Assignment, new: Assignment | None) -> LoadmasterError:
    if new is not None and new.generation > old.generation:
        return GoneError(
            f"generation {old.generation} of run {old.run} is over, {new.generation} is current: join again"
        )
    return MovedError(f"stream {old.stream} of run {old.run} is no longer served here as it was: ask the planner again")
