"""Joins: ranks meet, and when all of them ask for the same start a new generation opens."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.control import JoinReply, JoinRequest
from loadmaster_flight.wire.errors import BadRequestError, GoneError
from loadmaster_flight.wire.skipping import Skip

from ..planning.place_tree import ClientPlaceTree
from ..planning.rehearsal import rehearse
from ..store import (
    ACTORS,
    GenerationKey,
    GenerationRecord,
    GenerationState,
    NewGeneration,
    Store,
    StreamKey,
)
from .mesh import check_batch, check_coords
from .presence import RankWatch
from .rendezvous import Entry, Rendezvous
from .starting import Start, start_of

LOG = logging.getLogger(__name__)
POLL_S = 1.0
"""How long a join that must wait is held before it is answered with whom it waits for."""
SOON_S = 0.3
"""The same, while it is open whether the rank's old generation is over."""
MAX_WORLD_SIZE = 1 << 20


class JoinService:
    """Takes joins of ranks. Any thread may call it.

    A join that was answered "open" is answered so again: ranks may repeat it. A new nonce of a rank is a new attempt
    and begins a rendezvous. It is complete when every rank has asked since the last one came, so that none which died
    while it waited is counted in. The generation that the rank was a member of is fenced as soon as it is clear that it
    cannot go on without it (`RankWatch.is_abandoned`), so that the others learn of it and come; at the latest when the
    rendezvous is complete. One that is paused or failed is left alone until then: it may be let go on.

    Args:
        store: The truth.
        ranks: How the ranks of open generations are.
    """

    def __init__(self, store: Store, ranks: RankWatch | None = None) -> None:
        self._store, self._ranks = store, ranks or RankWatch()
        self._meetings: defaultdict[StreamKey, Rendezvous] = defaultdict(Rendezvous)
        self._lock = threading.Lock()
        self._rehearsed: dict[StreamKey, ClientPlaceTree] = {}

    def join(self, key: StreamKey, request: JoinRequest) -> JoinReply:
        """Ask to take part; waits about a second for the others.

        Raises:
            NotFoundError: There is no such run or stream.
            BadRequestError: Rank, world_size, step or skip make no sense; names the field.
            MeshError: The mesh does not fit the ranks, the batch, or what the rank says of its own place.
            SpecError: The run's strategy breaks a rule on this mesh; names both.
            ConflictError: Another rank asks for something else, the parent never bound that step, or what is to be
                left out reaches beyond its end.
            GoneError: This attempt's generation was replaced by a newer one, or the step is not held any more.
        """
        spec = self._store.runs.definition(key.run).spec
        self._store.generations.newest(key)  # refuses a stream that the run does not have
        _check_request(request)
        tree = ClientPlaceTree.from_spec(spec.mesh, request.world_size, request.mesh)
        mesh = tree.mesh
        check_batch(mesh, spec, key.stream)
        coords = check_coords(mesh, request.rank, request.coords)
        self._rehearse(key, spec, tree)
        generation, missing = self._wait_open(key, request, mesh)
        if generation is None:
            return JoinReply(state="waiting", waiting_for=missing, coords=coords, mesh=mesh)
        return _open_reply(spec, generation, check_coords(generation.mesh, request.rank, request.coords))

    def waiting_for(self, key: StreamKey) -> list[int]:
        """Ranks that a rendezvous under way still waits for."""
        with self._lock:
            meeting = self._meetings.get(key)
            return meeting.waiting_for(time.monotonic()) if meeting else []

    def _rehearse(self, key: StreamKey, spec: RunSpec, tree: ClientPlaceTree) -> None:
        """Once for all ranks that come with the same mesh."""
        if self._rehearsed.get(key) != tree:
            rehearse(spec, stream=key.stream, tree=tree)
            self._rehearsed[key] = tree

    def _wait_open(
        self, key: StreamKey, request: JoinRequest, mesh: dict[str, int]
    ) -> tuple[GenerationRecord | None, list[int]]:
        now_s = time.monotonic()
        asking: Entry | None = Entry(request=request, mesh=mesh, asked_s=now_s, since_s=now_s)
        until, topic = now_s + POLL_S, str(key)
        while True:
            seen = self._store.bulletin.seen(topic)
            generation, missing, must_ask_again = self._advance(key, request, asking)
            if generation is None and asking is not None and self._is_old_undecided(key, request):
                until = min(until, now_s + SOON_S)
            left_s, asking = until - time.monotonic(), None
            if generation is not None or must_ask_again or left_s <= 0:
                return generation, missing
            if not self._store.bulletin.wait(topic, seen, left_s):
                return None, missing

    def _advance(
        self, key: StreamKey, request: JoinRequest, asking: Entry | None
    ) -> tuple[GenerationRecord | None, list[int], bool]:
        """The generation if it is open; else whom the rank waits for, and whether it must ask again at once.

        Args:
            key: The stream.
            request: The rank's.
            asking: What enters the rendezvous; None when a request that is held looks again.
        """
        with self._lock:
            known = self._store.generations.joined_as(key, request.rank, request.nonce)
            if known is not None:
                self._store.generations.see(known.key, request.rank)
                return _still_open(known), [], False
            self._check_start(key, request)
            meeting = self._meetings[key]
            is_new = asking is not None and meeting.enter(asking)
            missing = meeting.waiting_for(time.monotonic())
            if missing or not meeting.is_here(request):
                if is_new:
                    self._store.bulletin.post(str(key))
                return None, missing, meeting.must_ask_again(request.rank)
            generation = self._open(key, meeting.take())
        self._store.bulletin.post(str(key))
        self._store.bulletin.post(ACTORS)
        return generation, [], False

    def _is_old_undecided(self, key: StreamKey, request: JoinRequest) -> bool:
        """Fence what the rank was a member of, if that is due; else whether it may become due soon."""
        with self._lock:
            since_s = self._meetings[key].since_s(request)
        old = self._store.generations.newest(key)
        if since_s is None or old is None or old.state is not GenerationState.OPEN or request.rank >= old.world_size:
            return False
        if not self._ranks.is_abandoned(old, request.rank, since_s=since_s):
            return True
        if self._store.generations.fence(old.key, f"rank {request.rank} joined again"):
            LOG.warning("%s is over: rank %d joined again", old.key, request.rank)
            self._store.bulletin.post(str(key))
            self._store.bulletin.post(ACTORS)
        return False

    def _open(self, key: StreamKey, entries: list[Entry]) -> GenerationRecord:
        request, nonces = entries[0].request, [entry.request.nonce for entry in entries]
        start = self._check_start(key, request)
        self._store.runs.activate(key.run)
        new = NewGeneration(
            parent=start.parent,
            first_step=request.step,
            mesh=entries[0].mesh,
            nonces=nonces,
            replay_until=start.replay_until,
            skip=Skip.of(request.skip),
        )
        return self._store.generations.open(key, new)

    def _check_start(self, key: StreamKey, request: JoinRequest) -> Start:
        """Refuse what no generation can start with."""
        if request.parent < 0:
            return Start()
        named = GenerationKey(run=key.run, stream=key.stream, generation=request.parent)
        return start_of(self._store.generations.lineage(named), request)


def _still_open(generation: GenerationRecord) -> GenerationRecord:
    if generation.state is GenerationState.FENCED:
        why = f"is over: {generation.reason}" if generation.code == GoneError.code else "was replaced by a newer one"
        raise GoneError(f"{generation.key} {why}: connect again")
    return generation


def _check_request(request: JoinRequest) -> None:
    if not 1 <= request.world_size <= MAX_WORLD_SIZE:
        raise BadRequestError(f"world_size must be in [1, {MAX_WORLD_SIZE}], got {request.world_size}")
    if not 0 <= request.rank < request.world_size:
        raise BadRequestError(f"rank must be in [0, {request.world_size}), got {request.rank}")
    if not 1 <= len(request.nonce) <= 64:
        raise BadRequestError(f"nonce must have 1 to 64 characters, got {len(request.nonce)}")
    if request.step < 0:
        raise BadRequestError(f"step must be at least 0, got {request.step}")
    if request.parent < 0 and request.step != 0:
        raise BadRequestError(f"step must be 0 without a parent generation, got {request.step}")
    skip = Skip.of(request.skip)
    if len(skip) and skip.first < request.step:
        raise BadRequestError(f"skip must begin at step {request.step} or after it, got {request.skip}")


def _open_reply(spec: RunSpec, generation: GenerationRecord, coords: dict[str, int]) -> JoinReply:
    return JoinReply(
        state="open",
        generation=generation.key.generation,
        first_step=generation.first_step,
        coords=coords,
        mesh=generation.mesh,
        source_names=spec.source_names,
        layout=spec.batch.layout.value,
        rows=spec.batch.rows,
        tp_mode=spec.mesh.tp_mode.value,
        skip=generation.skip.as_list(),
    )
