"""A planner at the scale of thousands of ranks that has heard of everybody, in this process.

The plan log is really planned and recorded (`recorded`); what processes would report is made up by rule and handed to
the planner as its routes would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from loadmaster_flight.wire.control import RankReport, RegisterRequest, Role, SourceReport, StreamProgress
from loadmaster_server.app import Planner
from loadmaster_server.live.balance import MAX_STEPS
from loadmaster_server.live.sources import SourceQuery
from loadmaster_server.settings import PlannerSettings
from loadmaster_server.store import ActorRecord, GenerationKey, LeaseKind, LeaseRecord, StreamKey

from .recorded import Scale, record

LOADERS, CONSTRUCTORS = 32, 512
LATE = (77, 1300)


class World:
    """A planner that has heard of everybody. `close` it; one thread calls it."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.scale, self.late = scale, LATE
        self.planner = Planner(PlannerSettings(state_dir=folder))
        self.key: GenerationKey = record(self.planner.store, scale)
        self.step = scale.acknowledged
        self.actors = [self._register(Role.LOADER, i) for i in range(LOADERS)]
        self.actors += [self._register(Role.CONSTRUCTOR, i) for i in range(CONSTRUCTORS)]
        self._lease()
        self._now_s = time.monotonic() - 60.0
        for _ in range(30):
            self.beat()

    def _register(self, role: Role, number: int) -> ActorRecord:
        request = RegisterRequest(role=role, address=f"grpc://127.0.0.1:{20000 + 1000 * (role == 'loader') + number}",
                                  incarnation=f"{role}-{number}")  # fmt: skip
        self.planner.actors.register(request)
        return next(a for a in self.planner.store.actors.all() if a.address == request.address)

    def _lease(self) -> None:
        run, dp = self.key.run, self.scale.mesh["dp"]
        loaders, constructors = self.actors[:LOADERS], self.actors[LOADERS:]
        leases = [
            LeaseRecord(run=run, kind=LeaseKind.PARTITION, source=i, slot=0, slots=1, actor=loaders[i % LOADERS].number)
            for i in range(self.scale.num_sources)
        ]
        leases += [
            LeaseRecord(
                run=run, kind=LeaseKind.DP, stream="train", generation=self.key.generation, slot=slot, slots=dp,
                actor=constructors[slot * CONSTRUCTORS // dp].number,
            )
            for slot in range(dp)
        ]  # fmt: skip
        self.planner.store.actors.replace_leases(leases)

    def close(self) -> None:
        self.planner.close()

    def beat(self) -> None:
        """Two seconds go by: a step, and a heartbeat of everybody."""
        self._now_s += 2.0
        self.step = min(self.step + 1, self.scale.num_steps - 8)
        self.planner.store.generations.acknowledge(self.key, self.step)
        watch, alive_s = self.planner.watch, self._now_s
        watch.pace.note(self.key, self.step, now_s=self._now_s)
        stats = {"busy_s": 0.6 * alive_s, "blocked_s": 0.1 * alive_s, "idle_s": 0.3 * alive_s}
        for number, actor in enumerate(self.actors):
            watch.loads.note(actor.actor_id, stats, now_s=self._now_s)
            if number < LOADERS:
                watch.sources.note(actor.number, [self._reads(number)], now_s=self._now_s)
        watch.ranks.note([self._progress()], now_s=time.monotonic())

    def _progress(self) -> StreamProgress:
        ranks = list(range(self.scale.world_size))
        report = RankReport(
            ranks=ranks,
            acknowledged=[self.step - (rank in self.late) for rank in ranks],
            seen_s=[0.1] * len(ranks),
            moved_s=[0.5] * len(ranks),
            wait_rank=ranks,
            wait_step=[self.step - 1] * len(ranks),
            wait_s=[0.02 + rank * 7919 % 97 / 4000 for rank in ranks],
            hosts={f"node-{i:03}": ranks[8 * i : 8 * i + 8] for i in range(len(ranks) // 8)},
        )
        return StreamProgress(run=self.key.run, stream="train", generation=self.key.generation, step=0, ranks=report)

    def _reads(self, loader: int) -> SourceReport:
        own = list(range(loader, self.scale.num_sources, LOADERS))
        return SourceReport(
            run=self.key.run,
            source=own,
            reads=[self.step * 10] * len(own),
            read_bytes=[1 << 24] * len(own),
            p50_ms=[4.0] * len(own),
            p99_ms=[20.0] * len(own),
            errors=[0] * len(own),
            retries=[0] * len(own),
            last_error=[""] * len(own),
            last_error_s=[-1.0] * len(own),
            is_failing=[False] * len(own),
        )

    def answers(self) -> dict[str, Callable[[], BaseModel]]:
        """Name -> what makes the answer."""
        live, key = self.planner.live, StreamKey(run=self.key.run, stream="train")
        first = max(0, self.scale.num_steps - MAX_STEPS)
        return {
            "overview": lambda: live.overview.read(key, 60.0),
            "graph": lambda: live.graph.read(key, 60.0, None),
            "graph_expanded": lambda: live.graph.read(key, 60.0, "sources:web"),
            "mesh": lambda: live.mesh.read(key, 60.0),
            "balance": lambda: live.balance.read(key, step=8, at=0.0),
            "balance_400_steps": lambda: live.balance.read(key, first=first, last=self.scale.num_steps, at=0.0),
            "sources": lambda: live.sources.read(key, SourceQuery(limit=500), 60.0),
            "checkpoints": lambda: live.checkpoints.read(key, before=0, limit=500),
        }
