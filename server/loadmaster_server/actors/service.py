"""Actors: registration, heartbeats, expiry, and the desired state that answers a heartbeat."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.actor import MAX_PAUSE_S
from loadmaster_flight.wire.addresses import check_flight_address
from loadmaster_flight.wire.control import (
    ActorView,
    HeartbeatReply,
    HeartbeatRequest,
    RegisterReply,
    RegisterRequest,
    Role,
    StreamProgress,
    SuspectReply,
    SuspectReport,
)
from loadmaster_flight.wire.errors import BadRequestError, LoadmasterError, NotFoundError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.probing import refusing
from loadmaster_flight.wire.tls import Tls

from ..outage import OutageLog
from ..store import ACTORS, ActorRecord, GenerationKey, LeaseRecord, Store
from .desired import Duties, Picture, draw_picture
from .handover import hand_over
from .hearing import Hearing
from .lives import Life
from .placement import place_dp_ranks, place_partitions
from .progress import Progress

LOG = logging.getLogger(__name__)
LEASES = "leases"
"""Topic of the bulletin: leases were brought up to date."""
SUSPECT_S = 1.0
"""Who is silent for this long, and for two heartbeats, is looked at: if its port refuses, it is given up at once."""
HEALTH_S = 1.0
HANDOVER_S = 5.0
"""An heir that is not warm after this long becomes the owner as it is."""
SETTLE_S = 1.0


class ActorService:
    """Keeps track of who is alive. Any thread may call it; one thread of its own expires and reassigns.

    Who is alive is kept in memory and built again from SQL and heartbeats. Silence counts only while the planner could
    hear (`Hearing`). Leases are derived from those there are, and move no more than they must; from a live process they
    move when the next owner is warm.

    Args:
        store: The truth.
        heartbeat_s: How often processes report.
        lease_s: Silence after which a process is given up.
        on_progress: Called with what a constructor's heartbeat says of its streams; must not block.
        awaited: Whom the ranks of a generation wait for, for people; constructors pass it on to them.
        on_heard: Called with every heartbeat; must not block.
        on_acknowledged: Called when all ranks of a generation have acknowledged more; must not block.
        is_open: Whether the planner answers requests; leases do not lapse while it does not.
        tls: How to call processes; None: what the environment says.
    """

    def __init__(
        self,
        store: Store,
        *,
        heartbeat_s: float,
        lease_s: float,
        on_progress: Callable[[list[StreamProgress]], None] = lambda _: None,
        awaited: Callable[[GenerationKey], str] = lambda _: "",
        on_heard: Callable[[ActorRecord, HeartbeatRequest], None] = lambda *_: None,
        on_acknowledged: Callable[[GenerationKey, int], None] = lambda *_: None,
        is_open: Callable[[], bool] = lambda: True,
        tls: Tls | None = None,
    ) -> None:
        self._tls = tls
        self._store, self._heartbeat_s, self._lease_s = store, heartbeat_s, lease_s
        self._on_progress, self._awaited = on_progress, awaited
        self._on_heard, self._on_acknowledged = on_heard, on_acknowledged
        self._patience_s = max(SUSPECT_S, 2 * heartbeat_s)
        patience_s = min(self._patience_s, lease_s / 2)
        self._hearing = Hearing(patience_s=patience_s, grace_s=MAX_PAUSE_S, is_open=is_open)
        self._lives = {record.number: self._life_of(record) for record in store.actors.all()}
        self._progress: dict[GenerationKey, Progress] = {}
        self._picture = Picture()
        self._moving_since_s: dict[LeaseRecord, float] = {}
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
            BadRequestError: The address is no Flight address, or in plain text beyond this machine; or incarnation is
                empty or too long.
        """
        _check_registration(request)
        record = self._store.actors.register(request)
        with self._lock:
            stale = [n for n, life in self._lives.items() if life.record.address == record.address]
            for number in stale:
                del self._lives[number]
            self._lives[record.number] = self._life_of(record)
            self._hearing.hear()
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
            self._hearing.hear()
            is_news = life.hear(request, self._hearing.now_s)
            risen = self._note(life, request.acknowledged)
        self._on_progress(request.acknowledged)
        self._on_heard(life.record, request)
        for key, step in risen.items():
            self._on_acknowledged(key, step)
            self._store_acknowledged(key, step)
        if is_news and (life.is_leaving or self._moving_since_s):
            self._store.bulletin.post(ACTORS)
        with self._lock:
            return self._desired(life)

    def views(self) -> list[ActorView]:
        """Who has not been given up, in the order in which they came."""
        now_s = time.monotonic()
        with self._lock:
            return [life.view(now_s) for _, life in sorted(self._lives.items())]

    def leaving(self) -> set[str]:
        """Those that are about to end, and serve until others have their leases."""
        with self._lock:
            return {life.record.actor_id for life in self._lives.values() if life.is_leaving}

    def suspect(self, report: SuspectReport) -> SuspectReply:
        """Look at a process that cannot be reached, it is said: give it up at once if its port refuses.

        One that does not answer is given up when it is not heard of either: it was stopped, or cut off.

        Returns when its leases have gone to others, but after a second in any case.
        """
        with self._lock:
            numbers = [n for n, life in self._lives.items() if life.record.address == report.address]
        found = f"as {report.by or 'somebody'} found"
        why = f"refuses connections, {found}" if refusing([report.address]) else ""
        if numbers and not why and report.hangs and self._hangs(numbers, report.address):
            why = f"neither answers nor is heard of, {found}"
        if numbers and not why:
            return SuspectReply(is_gone=False)
        seen = self._store.bulletin.seen(LEASES)
        if numbers and self._give_up(numbers, why):
            self._store.bulletin.wait(LEASES, seen, SETTLE_S)
        return SuspectReply(is_gone=True)

    def _hangs(self, numbers: Sequence[int], address: str) -> bool:
        """Whether a process neither answers nor reports; takes a second if so."""
        try:
            with FlightPeer(address, tls=self._tls) as peer:
                peer.action(Action.HEALTH, timeout_s=HEALTH_S)
            return False
        except LoadmasterError as error:
            if not error.retry:  # it refuses us, so it is there
                return False
        with self._lock:
            seen_s = [self._lives[n].seen_s for n in numbers if n in self._lives]
        return bool(seen_s) and time.monotonic() - max(seen_s) > self._patience_s

    def leave(self, actor_id: str) -> None:
        """A process goes in peace; one that is gone already is fine too."""
        with self._lock:
            number = next((n for n, life in self._lives.items() if life.record.actor_id == actor_id), None)
            if number is None:
                return
            del self._lives[number]
        self._store.actors.remove([number])
        self._store.bulletin.post(ACTORS)

    def _life_of(self, record: ActorRecord) -> Life:
        return Life(record=record, seen_s=time.monotonic(), heard_s=self._hearing.now_s)

    def _life(self, actor_id: str) -> Life:
        for life in self._lives.values():
            if life.record.actor_id == actor_id:
                return life
        raise NotFoundError(f"there is no actor {actor_id!r}, or it was silent for {self._lease_s} s: register again")

    def _note(self, life: Life, acknowledged: Iterable[StreamProgress]) -> dict[GenerationKey, int]:
        """Take acknowledgements in; returns the common ones that are not stored yet.

        A constructor speaks of each rank, also of one that has moved since: what was acknowledged to it nobody else
        can know, least of all where the rank has closed its stream. Else its word counts for the ranks last handed out.
        """
        risen: dict[GenerationKey, int] = {}
        for word in acknowledged:
            key = GenerationKey(run=word.run, stream=word.stream, generation=word.generation)
            progress, ranks, steps = self._progress.get(key), word.ranks.ranks, word.ranks.acknowledged
            if not ranks:
                ranks = life.duties.serves.get(key, [])
                steps = [word.step] * len(ranks)
            if progress is None or not ranks:
                continue
            progress.note(ranks, steps)
            if progress.common > progress.stored:
                risen[key] = progress.common
        return risen

    def _store_acknowledged(self, key: GenerationKey, step: int) -> None:
        """One that cannot be stored, as the database is away or nothing is bound yet, comes with a later heartbeat."""
        stored = self._store.generations.acknowledge(key, step).acknowledged
        with self._lock:
            if progress := self._progress.get(key):
                progress.stored = max(progress.stored, stored)
        self._store.bulletin.post(str(key.stream_key))

    def _desired(self, life: Life) -> HeartbeatReply:
        duties = self._picture.duties.get(life.record.number, Duties())
        life.duties = duties
        released = [
            StreamProgress(
                run=key.run,
                stream=key.stream,
                generation=key.generation,
                step=progress.common,
                status=self._awaited(key),
            )
            for key, progress in self._progress.items()
            if key.run in duties.runs
        ]
        return HeartbeatReply(leases=duties.leases, assignments=duties.assignments, released=released)

    def _watch(self) -> None:
        done, outage = -1, OutageLog("leases")
        while not self._stop.is_set():
            seen = self._store.bulletin.seen(ACTORS)
            try:
                self._expire()
                if seen != done or self._moving_since_s:
                    self._reconcile()
                    done = seen
                outage.went_well()
            except Exception as error:  # whatever it is, leases have to be looked after
                outage.met(error)
            self._store.bulletin.wait(ACTORS, seen, self._heartbeat_s)
            if self._store.bulletin.is_closed:
                return

    def _expire(self) -> None:
        """Give up who refuses connections, and who was silent for a lease while we could hear."""
        self._hearing.tick()
        if not self._hearing.is_back:
            return
        now_s, heard_s = time.monotonic(), self._hearing.now_s
        with self._lock:
            lives = dict(self._lives)
        silent = [n for n, life in lives.items() if heard_s - life.heard_s > self._lease_s]
        doubtful = {n: life.record.address for n, life in lives.items() if now_s - life.seen_s > self._patience_s}
        refused = refusing(set(doubtful.values()))
        self._give_up([n for n, address in doubtful.items() if address in refused], "refuses connections")
        self._give_up(silent, f"silent for {self._lease_s} s")

    def _give_up(self, numbers: Sequence[int], why: str) -> bool:
        """Free what processes own and forget them; False when none of them is there any more."""
        with self._lock:
            lives = {number: self._lives[number] for number in numbers if number in self._lives}
        if not lives:
            return False
        self._store.actors.remove(list(lives))
        with self._lock:
            for number in lives:
                self._lives.pop(number, None)
        LOG.warning("given up: %s (%s)", ", ".join(life.record.actor_id for life in lives.values()), why)
        self._store.bulletin.post(ACTORS)
        return True

    def _reconcile(self) -> None:
        """Derive leases from those there are, who is alive and what is being read; write them where they changed."""
        runs = {name: self._store.runs.definition(name) for name in self._store.runs.active_names()}
        generations = [g for g in self._store.generations.current() if g.key.run in runs]
        in_use = self._store.generations.runs_in_use()
        previous = [lease for lease in self._store.actors.leases() if lease.run in in_use]
        with self._lock:
            lives = dict(sorted(self._lives.items()))
        stay = {n: life.record.role for n, life in lives.items() if not life.is_leaving}
        target = place_partitions(runs, [n for n, role in stay.items() if role == Role.LOADER], previous)
        target += place_dp_ranks(generations, [n for n, role in stay.items() if role == Role.CONSTRUCTOR], previous)
        leases = self._on_the_way(target, previous, lives)
        self._store.actors.replace_leases(leases)
        picture = draw_picture(runs, generations, leases, {n: life.record.address for n, life in lives.items()})
        with self._lock:
            self._picture = picture
            self._progress = {
                key: self._progress.get(key) or Progress(g, runs[key.run].spec.mesh.tp_mode)
                for key, g in picture.generations.items()
            }
        self._store.bulletin.post(LEASES)

    def _on_the_way(
        self, target: list[LeaseRecord], previous: list[LeaseRecord], lives: dict[int, Life]
    ) -> list[LeaseRecord]:
        """The leases for now: who is alive gives up what it owns when the heir is warm, or has had its time."""
        now_s = time.monotonic()

        def is_prepared(lease: LeaseRecord) -> bool:
            is_due = now_s - self._moving_since_s.get(lease, now_s) > HANDOVER_S
            return is_due or lives[lease.actor].is_prepared(lease)

        settled = hand_over(target, previous, alive=lives.keys(), is_prepared=is_prepared)
        self._moving_since_s = {lease: self._moving_since_s.get(lease, now_s) for lease in settled.pending}
        return settled.leases


def _check_registration(request: RegisterRequest) -> None:
    check_flight_address(request.address)
    if not 1 <= len(request.incarnation) <= 64:
        raise BadRequestError(f"incarnation must have 1 to 64 characters, got {len(request.incarnation)}")
