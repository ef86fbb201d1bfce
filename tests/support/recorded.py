"""A run at the scale of thousands of ranks, recorded: a plan log that was really planned, in a real store.

Planning, checkpoints and records are the planner's own; the documents' lengths are stated, so that no payload is
needed. What processes would say of themselves (`RecordedActors`) is made up by rule, and said over the real HTTP.
"""

from __future__ import annotations

import contextlib
import json
import math
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.control import (
    HeartbeatRequest,
    RankReport,
    RegisterReply,
    RegisterRequest,
    Role,
    SourceReport,
    StreamProgress,
)
from loadmaster_flight.wire.errors import LoadmasterError, NotFoundError, UnavailableError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_server.planning import NeedMetadata, StreamPlanner
from loadmaster_server.planning.simulation import Lengths, StatedSource
from loadmaster_server.planning.simulation.made_up import BLOCK_ROWS
from loadmaster_server.plans.step_writer import plan_record
from loadmaster_server.store import Definition, GenerationKey, NewGeneration, Store, StreamKey

CHECKPOINT_STEPS = 8
RANKS_PER_HOST = 8
FAMILIES = {"web": "lognormal:700,1.2", "code": "pareto:1.3,300", "books": "lognormal:2400,1.1", "chat": "bimodal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the run is.

    Attributes:
        mesh: Axis -> size, slowest first.
        per_rank: Microbatches of a dp rank.
        num_steps: Planned.
        acknowledged: By all ranks. Up to `num_steps - ahead` they can go on without a step having to be planned.
    """

    run: str = "scale"
    mesh: dict[str, int] = field(default_factory=lambda: {"pp": 4, "dp": 512, "cp": 1, "tp": 2})
    num_sources: int = 306
    lanes: int = 2
    per_rank: int = 2
    seq_len: int = 8192
    num_steps: int = 128
    acknowledged: int = 60
    ahead: int = 40

    @property
    def world_size(self) -> int:
        return math.prod(self.mesh.values())

    @property
    def source_names(self) -> list[str]:
        """`web-000`, `code-001`, ... by turns."""
        kinds = list(FAMILIES)
        return [f"{kinds[i % len(kinds)]}-{i:03}" for i in range(self.num_sources)]

    def spec(self) -> RunSpec:
        """Weights fall off slowly; every fifth source ramps while the log goes on."""
        names, end = self.source_names, max(self.num_steps, 2)
        weights: dict[str, Any] = {}
        for i, name in enumerate(names):
            weight = 1 / (1 + i) ** 0.7
            knots = [{"at": 0, "value": weight, "shape": "linear"}, {"at": end, "value": weight * (0.4 + i % 3)}]
            weights[name] = weight if i % 5 else knots
        tree = {
            "run": self.run,
            "sources": {name: {"uri": f"{name}.jsonl", "transform": {"text": "text"}} for name in names},
            "mixture": {"weights": weights},
            "batch": {"seq_len": self.seq_len, "microbatches": self.mesh["dp"] * self.per_rank},
            "mesh": {axis: size for axis, size in self.mesh.items() if axis != "dp"},
            "budgets": {"plan_ahead": self.ahead},
        }
        return RunSpec.model_validate(tree)

    def manifests(self) -> list[SourceManifest]:
        """A shard for every block of rows that the steps may come to."""
        shard = {"size_bytes": 1 << 26, "etag": "e", "num_rows": BLOCK_ROWS}
        fixed = {"format": "jsonl", "lanes": self.lanes, "unit_kind": "shard", "block_bytes": 4096, "fingerprint": "f"}
        num_shards = 8 + self.num_steps // 8
        return [
            SourceManifest.model_validate(
                fixed
                | {"name": name, "ordinal": i}
                | {"shards": [shard | {"uri": f"s3://corpus/{name}/{at:04}.jsonl"} for at in range(num_shards)]}
            )
            for i, name in enumerate(self.source_names)
        ]


def record(store: Store, scale: Scale) -> GenerationKey:
    """Plan the steps and write them as the plan loop does."""
    spec = scale.spec()
    store.runs.create(Definition(spec=spec, manifests=tuple(scale.manifests())))
    nonces = [str(rank) for rank in range(scale.world_size)]
    stream = StreamKey(run=spec.run, stream="train")
    key = store.generations.open(stream, NewGeneration(parent=-1, first_step=0, mesh=scale.mesh, nonces=nonces)).key
    planner = StreamPlanner(spec, "train", [scale.lanes] * scale.num_sources, scale.mesh)
    for plan in _plans(planner, scale, spec.seed):
        state = planner.state()
        kept = plan_record(
            plan, list(state.placed_tokens_S), graph=planner.aggregate(), origins=planner.origins()
        )  # fmt: skip
        is_base = planner.step % CHECKPOINT_STEPS == 0 or planner.step == scale.num_steps
        store.plans.commit(key, kept, checkpoint=state.to_bytes() if is_base else None)
    store.generations.bind(key, scale.acknowledged + spec.budgets.bind_ahead)
    store.generations.acknowledge(key, scale.acknowledged)
    return key


def _plans(planner: StreamPlanner, scale: Scale, seed: int) -> Iterator[StepPlan]:
    kinds = [Lengths.parse(text) for text in FAMILIES.values()]
    sources = [StatedSource(i, kinds[i % len(kinds)], scale.lanes, seed=seed) for i in range(scale.num_sources)]
    while planner.step < scale.num_steps:
        try:
            yield planner.plan_next()
        except NeedMetadata as need:
            for demand in need.demands:
                planner.feed(sources[demand.source].measure(demand))


def record_in(state_dir: Path, scale: Scale) -> GenerationKey:
    """The same into the store of a planner's state folder."""
    state_dir.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{(state_dir / 'planner.db').absolute()}"
    with Store(url, storage=str(state_dir / "segments")) as store:
        return record(store, scale)


@dataclass(slots=True)
class RecordedActors:
    """Loaders and constructors of a recorded run, as far as the planner hears of them. Use it with `with`.

    They register and report over HTTP, again where they were given up; who calls one is cut off at once. Constructors
    report the ranks that the planner assigned to them: all at the common step, but for `slow` (late by some seconds)
    and `silent` ones. With `move()` all ranks have consumed one step more.

    Args:
        url: Of the planner.
        step: What all ranks have acknowledged.
        last: Where they stop, so that nothing needs to be planned.
    """

    url: str
    step: int
    last: int
    num_loaders: int = 8
    num_constructors: int = 16
    silent: frozenset[int] = frozenset({2741})
    slow: frozenset[int] = frozenset({77, 1300})
    beat_s: float = 0.5
    _actors: list[_Actor] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> RecordedActors:
        roles = [Role.LOADER] * self.num_loaders + [Role.CONSTRUCTOR] * self.num_constructors
        self._actors = [_Actor.register(self.url, role, i) for i, role in enumerate(roles)]
        self._beat()
        for target in (self._run, self._cut_off):
            self._threads.append(threading.Thread(target=target, name="recorded actors", daemon=True))
            self._threads[-1].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        for actor in self._actors:
            actor.close()

    def move(self, steps: int = 1) -> None:
        """All ranks have consumed some steps more."""
        self.step = min(self.step + steps, self.last)

    def ranks(self) -> list[int]:
        """The ranks that constructors have been given so far, ascending."""
        return sorted(rank for actor in self._actors for serves in actor.assignments for rank in serves["ranks"])

    def _run(self) -> None:
        while not self._stop.wait(self.beat_s):
            with contextlib.suppress(UnavailableError):  # a planner that is being restarted
                self._beat()

    def _cut_off(self) -> None:
        """Take each connection and close it."""
        with selectors.DefaultSelector() as selector:
            for actor in self._actors:
                selector.register(actor.port, selectors.EVENT_READ)
            while not self._stop.is_set():
                for key, _ in selector.select(0.1):
                    with contextlib.suppress(OSError):
                        key.fileobj.accept()[0].close()  # type: ignore[union-attr]

    def _beat(self) -> None:
        for actor in self._actors:
            actor.beat([self._progress(serves, actor.told) for serves in actor.assignments])
            actor.told = self.step

    def _progress(self, serves: dict[str, Any], told: int) -> StreamProgress:
        return StreamProgress(
            run=serves["run"],
            stream=serves["stream"],
            generation=serves["generation"],
            step=self.step,
            is_ready=True,
            ranks=self._report(serves["ranks"], told),
        )

    def _report(self, ranks: list[int], told: int) -> RankReport:
        """Waits are told once a step, as constructors tell them."""
        heard = [rank for rank in ranks if rank not in self.silent] if told < self.step else []
        hosts: dict[str, list[int]] = {}
        for rank in ranks:
            hosts.setdefault(f"node-{rank // RANKS_PER_HOST:03}", []).append(rank)
        return RankReport(
            ranks=ranks,
            acknowledged=[self.step] * len(ranks),
            seen_s=[40.0 if rank in self.silent else 0.1 + rank % 7 / 20 for rank in ranks],
            moved_s=[40.0 if rank in self.silent else 3.0 if rank in self.slow else 0.4 for rank in ranks],
            wait_rank=heard,
            wait_step=[self.step - 1] * len(heard),
            wait_s=[1.2 if rank in self.slow else 0.02 + rank * 7919 % 97 / 4000 for rank in heard],
            hosts=hosts,
        )


@dataclass(slots=True)
class _Actor:
    """One registered process, which only reports."""

    client: PlannerClient
    port: socket.socket
    request: RegisterRequest
    actor_id: str = ""
    assignments: list[dict[str, Any]] = field(default_factory=list)
    leased: dict[str, list[int]] = field(default_factory=dict)
    told: int = -1
    since_s: float = field(default_factory=time.monotonic)

    @staticmethod
    def register(url: str, role: Role, number: int) -> _Actor:
        port = socket.create_server(("127.0.0.1", 0))
        port.setblocking(False)
        request = RegisterRequest(
            role=role, address=f"grpc://127.0.0.1:{port.getsockname()[1]}", incarnation=f"recorded-{number}"
        )
        actor = _Actor(client=PlannerClient(url), port=port, request=request)
        actor.announce()
        return actor

    def announce(self) -> None:
        """Register, the first time or again."""
        self.actor_id = self.client.post("/actors", self.request, RegisterReply).actor_id

    def beat(self, progress: list[StreamProgress]) -> None:
        """Report, and learn what is assigned. Loaders tell of every source that they were leased."""
        alive_s = time.monotonic() - self.since_s
        stats = {"busy_s": 0.6 * alive_s, "blocked_s": 0.1 * alive_s, "idle_s": 0.3 * alive_s}
        sources = [_reads(run, ordinals) for run, ordinals in self.leased.items()]
        beat = HeartbeatRequest(
            incarnation=self.request.incarnation, acknowledged=progress, stats=stats, sources=sources
        )  # fmt: skip
        try:
            reply = json.loads(self.client.request("POST", f"/actors/{self.actor_id}/heartbeat", body=beat))
        except NotFoundError:  # given up, on a machine that is too busy
            self.announce()
            return
        self.assignments, self.leased = reply["assignments"], {}
        for lease in reply["leases"]:
            self.leased.setdefault(lease["run"], []).append(lease["source"])

    def close(self) -> None:
        with contextlib.suppress(LoadmasterError):
            self.client.request("DELETE", f"/actors/{self.actor_id}")
        self.client.close()
        self.port.close()


def _reads(run: str, ordinals: list[int]) -> SourceReport:
    """Every fortieth source has trouble."""
    bad = [ordinal % 40 == 7 for ordinal in ordinals]
    return SourceReport(
        run=run,
        source=ordinals,
        reads=[200 + ordinal for ordinal in ordinals],
        read_bytes=[1 << 24] * len(ordinals),
        p50_ms=[4.0 + ordinal % 9 for ordinal in ordinals],
        p99_ms=[20.0 + ordinal % 31 for ordinal in ordinals],
        errors=[2 * is_bad for is_bad in bad],
        retries=[5 * is_bad for is_bad in bad],
        last_error=["503 Slow Down" if is_bad else "" for is_bad in bad],
        last_error_s=[12.0 if is_bad else -1.0 for is_bad in bad],
        is_failing=bad,
    )
