"""Actors: registration, heartbeats, expiry, and the desired state that answers a heartbeat."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from loadmaster_flight.wire.control import (
    ActorView,
    HeartbeatReply,
    HeartbeatRequest,
    RegisterReply,
    RegisterRequest,
    Role,
    StreamProgress,
)
from loadmaster_flight.wire.errors import BadRequestError, LoadmasterError, NotFoundError
from loadmaster_flight.wire.flight import loopback_only

from ..store import ACTORS, ActorRecord, GenerationKey, Store
from .desired import Duties, Picture, draw_picture
from .placement import place_dp_ranks, place_partitions
from .progress import Progress

LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Life:
    """A process as this planner sees it. `serves`: the ranks that its last heartbeat was answered with."""

    record: ActorRecord
    seen_s: float
    stats: dict[str, float] = field(default_factory=dict)
    serves: dict[GenerationKey, list[int]] = field(default_factory=dict)


class ActorService:
    """Keeps track of who is alive. Any thread may call it; one thread of its own expires and reassigns.

    Who is alive is kept in memory and built again from SQL and heartbeats: after a restart, and after the planner
    itself was held up, everybody has one more lease.

    Args:
        store: The truth.
        heartbeat_s: How often processes report.
        lease_s: Silence after which a process is given up.
    """

    def __init__(self, store: Store, *, heartbeat_s: float, lease_s: float) -> None:
        self._store, self._heartbeat_s, self._lease_s = store, heartbeat_s, lease_s
        now_s = time.monotonic()
        self._lives = {record.number: Life(record=record, seen_s=now_s) for record in store.actors.all()}
        self._progress: dict[GenerationKey, Progress] = {}
        self._picture = Picture()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="actors", daemon=True)

    def start(self) -> None:
        """Begin to expire silent actors and to reassign what changes."""
        self._thread.start()

    def close(self) -> None:
        """Stop; the store's bulletin must be closed first. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def register(self, request: RegisterRequest) -> RegisterReply:
        """Take a process in. The same incarnation again gets the same name.

        Raises:
            BadRequestError: The address is not a loopback Flight address, or incarnation is empty or too long.
        """
        _check_registration(request)
        record = self._store.actors.register(request)
        with self._lock:
            stale = [n for n, life in self._lives.items() if life.record.address == record.address]
            for number in stale:
                del self._lives[number]
            self._lives[record.number] = Life(record=record, seen_s=time.monotonic())
        self._store.bulletin.post(ACTORS)
        return RegisterReply(
            actor_id=record.actor_id,
            ticket_key_hex=self._store.ticket_key.hex(),
            heartbeat_s=self._heartbeat_s,
            lease_s=self._lease_s,
        )

    def heartbeat(self, actor_id: str, request: HeartbeatRequest) -> HeartbeatReply:
        """Renew the leases of a process and tell it its desired state.

        Raises:
            NotFoundError: It is unknown, was given up, or is another life: it must register again.
        """
        with self._lock:
            life = self._life(actor_id)
            if life.record.incarnation != request.incarnation:
                raise NotFoundError(f"actor {actor_id} is another incarnation: register again")
            life.seen_s, life.stats = time.monotonic(), request.stats
            risen = self._note(life, request.acknowledged)
        for key, step in risen.items():
            self._store.generations.acknowledge(key, step)
            self._store.bulletin.post(str(key.stream_key))
        with self._lock:
            return self._desired(life)

    def views(self) -> list[ActorView]:
        """Who has not been given up, in the order in which they came."""
        now_s = time.monotonic()
        with self._lock:
            return [_view(life, now_s) for _, life in sorted(self._lives.items())]

    def leave(self, actor_id: str) -> None:
        """A process goes in peace; one that is gone already is fine too."""
        with self._lock:
            number = next((n for n, life in self._lives.items() if life.record.actor_id == actor_id), None)
            if number is None:
                return
            del self._lives[number]
        self._store.actors.remove([number])
        self._store.bulletin.post(ACTORS)

    def _life(self, actor_id: str) -> Life:
        for life in self._lives.values():
            if life.record.actor_id == actor_id:
                return life
        raise NotFoundError(f"there is no actor {actor_id!r}, or it was silent for {self._lease_s} s: register again")

    def _note(self, life: Life, acknowledged: Iterable[StreamProgress]) -> dict[GenerationKey, int]:
        """Take acknowledgements in; returns the common ones that rose. A word counts for the ranks last handed out."""
        risen: dict[GenerationKey, int] = {}
        for word in acknowledged:
            key = GenerationKey(run=word.run, stream=word.stream, generation=word.generation)
            progress, ranks = self._progress.get(key), life.serves.get(key)
            if progress is None or not ranks:
                continue
            before = progress.common
            progress.note(ranks, word.step)
            if progress.common > before:
                risen[key] = progress.common
        return risen

    def _desired(self, life: Life) -> HeartbeatReply:
        duties = self._picture.duties.get(life.record.number, Duties())
        life.serves = duties.serves
        released = [
            StreamProgress(run=key.run, stream=key.stream, generation=key.generation, step=progress.common)
            for key, progress in self._progress.items()
            if key.run in duties.runs
        ]
        return HeartbeatReply(leases=duties.leases, assignments=duties.assignments, released=released)

    def _watch(self) -> None:
        done, ticked_s = -1, time.monotonic()
        while not self._stop.is_set():
            seen = self._store.bulletin.seen(ACTORS)
            try:
                self._expire(ticked_s)
                ticked_s = time.monotonic()
                if seen != done:
                    self._reconcile()
                    done = seen
            except LoadmasterError:
                LOG.exception("leases could not be brought up to date; trying again")
            self._store.bulletin.wait(ACTORS, seen, self._heartbeat_s)
            if self._store.bulletin.is_closed:
                return

    def _expire(self, ticked_s: float) -> None:
        now_s = time.monotonic()
        with self._lock:
            if now_s - ticked_s > self._lease_s / 2:  # we were held up ourselves: nobody could report
                for life in self._lives.values():
                    life.seen_s = now_s
            silent = [n for n, life in self._lives.items() if now_s - life.seen_s > self._lease_s]
            gone = [self._lives.pop(number).record.actor_id for number in silent]
        if gone:
            LOG.warning("silent for %s s, given up: %s", self._lease_s, ", ".join(gone))
            self._store.actors.remove(silent)
            self._store.bulletin.post(ACTORS)

    def _reconcile(self) -> None:
        """Derive all leases anew from who is alive and what is being read; write them where they changed."""
        runs = {name: self._store.runs.definition(name) for name in self._store.runs.active_names()}
        generations = [g for g in self._store.generations.current() if g.key.run in runs]
        with self._lock:
            records = [life.record for _, life in sorted(self._lives.items())]
        by_role = {role: [r.number for r in records if r.role == role] for role in Role}
        leases = place_partitions(runs, by_role[Role.LOADER])
        leases += place_dp_ranks(generations, by_role[Role.CONSTRUCTOR])
        self._store.actors.replace_leases(leases)
        picture = draw_picture(runs, generations, leases, {r.number: r.address for r in records})
        with self._lock:
            self._picture = picture
            self._progress = {key: self._progress.get(key) or Progress(g) for key, g in picture.generations.items()}


def _view(life: Life, now_s: float) -> ActorView:
    record = life.record
    return ActorView(
        actor_id=record.actor_id,
        role=Role(record.role),
        address=record.address,
        pid=record.pid,
        heartbeat_age_s=round(now_s - life.seen_s, 3),
        stats=life.stats,
    )


def _check_registration(request: RegisterRequest) -> None:
    if not request.address.startswith("grpc://"):
        raise BadRequestError(f"address must look like grpc://host:port, got {request.address!r}")
    loopback_only(request.address)
    if not 1 <= len(request.incarnation) <= 64:
        raise BadRequestError(f"incarnation must have 1 to 64 characters, got {len(request.incarnation)}")
    if len(request.address) > 255:
        raise BadRequestError(f"address must have at most 255 characters, got {len(request.address)}")
