"""A planner that listens, with loaders and constructors around it that answer like real ones on synthetic metadata."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from loadmaster_flight.wire.actor import ActorLink, ActorReport
from loadmaster_flight.wire.control import (
    Assignment,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
    Lease,
    RankReport,
    Role,
    SourceReport,
    StreamProgress,
)
from loadmaster_flight.wire.errors import ForbiddenError
from loadmaster_flight.wire.flight import FlightService
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.schemas import METADATA, SHOWN, Verdict
from loadmaster_flight.wire.step_plan import StepPlan, plans_from_bytes
from loadmaster_flight.wire.tickets import MeasureTicket, ShowTicket, verify
from loadmaster_server.plans import RetentionRules
from loadmaster_server.serving import PlannerServer
from loadmaster_server.settings import PlannerSettings

LANES, UNITS, ROWS = 4, 3, 40
"""Of each synthetic source: lanes, units of a lane, rows of a unit (one block each)."""
DEADLINE_S = 90.0
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.1


def wait_for(condition: Callable[[], Any], *, what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Poll until `condition` is true and return its value; fails with `what` when time is up."""
    until, pause, pause_s = time.monotonic() + deadline_s, threading.Event(), SHORTEST_PAUSE_S
    while not (value := condition()):
        assert time.monotonic() < until, f"waited {deadline_s} s for {what}"
        pause.wait(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)
    return value


def synthetic_row(source: int, epoch: int, lane: int, unit: int, pos: int) -> dict[str, Any]:
    """One row of metadata, a pure function of its place: 1 to 60 tokens, row = a permutation of pos."""
    word = (source * 7919 + epoch * 104729 + lane * 1299709 + unit * 15485863 + pos * 32452843) % 1000003
    row: dict[str, Any] = {"source": source, "epoch": epoch, "lane": lane, "unit_index": unit, "block_index": 0}
    row |= {"shard": lane + LANES * unit, "block": 0, "pos": pos, "row": synthetic_row_number(pos)}
    return row | {
        "verdict": Verdict.OK, "reason": None, "num_tokens": 1 + word % 60, "loss_spans": None, "size_bytes": 100,
    }  # fmt: skip


def lane_end(source: int, epoch: int, lane: int) -> dict[str, Any]:
    """The mark after a lane's last row."""
    end = synthetic_row(source, epoch, lane, UNITS, 0)
    return end | {"shard": -1, "block": -1, "pos": -1, "row": -1, "verdict": Verdict.LANE_END, "num_tokens": 0}


def synthetic_row_number(pos: int) -> int:
    """The row of a block that a position takes."""
    return (pos * 7 + 3) % ROWS


def shown(ticket: ShowTicket) -> pa.Table:
    """What a loader says of synthetic rows: `text N` is the text of row N."""
    rows = []
    for shard, block, number in ticket.places:
        positions = [p for p in range(ROWS) if (synthetic_row_number(p) if ticket.by_row else p) == number]
        pos, row = (positions[0], synthetic_row_number(positions[0])) if positions else (-1, -1)
        text = f"text {row}" if ticket.has_text else None
        place = {"shard": shard, "block": block, "pos": pos, "row": row, "reason": None, "text": text}
        known = synthetic_row(ticket.source, ticket.epoch, shard % LANES, shard // LANES, pos)["num_tokens"]
        rows.append(place | {"num_tokens": known if ticket.has_text else -1})
    return pa.Table.from_pylist(rows, schema=SHOWN)


def synthetic_manifest(ordinal: int, name: str) -> dict[str, Any]:
    """Manifest of a source as its rows are made here: LANES lanes of UNITS shards."""
    shards = [{"uri": f"{name}-{i}.jsonl", "size_bytes": 1000, "etag": f"e{i}"} for i in range(LANES * UNITS)]
    return {
        "name": name, "ordinal": ordinal, "format": "jsonl", "lanes": LANES, "unit_kind": "shard",
        "block_bytes": 4096, "shards": shards, "fingerprint": "f",
    }  # fmt: skip


@dataclass(slots=True)
class FakeLoader:
    """Answers MEASURE tickets over real Flight and holds leases like a Source Loader.

    `alter` may change a row before it is sent. `asked` collects the (source, lanes) of every question.
    What it stands by for is warm at once, while `is_warm`.
    """

    planner_url: str
    alter: Callable[[dict[str, Any]], dict[str, Any]] = lambda row: row
    asked: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    released: list[StreamProgress] = field(default_factory=list)
    is_warm: bool = True
    sources: list[SourceReport] = field(default_factory=list)
    service: FlightService = field(init=False)
    link: ActorLink = field(init=False)

    def __post_init__(self) -> None:
        self.service = _MeasureService(self)
        self.link = ActorLink(
            self.planner_url,
            role=Role.LOADER,
            address=self.service.address,
            on_desired=self._follow,
            report=self._report,
        )
        self.link.start()

    def _follow(self, desired: HeartbeatReply) -> None:
        self.leases, self.released = desired.leases, desired.released

    def _report(self) -> ActorReport:
        warm = [lease for lease in self.leases if lease.is_standby] if self.is_warm else []
        return ActorReport(warm=warm, sources=self.sources)

    def measure(self, ticket: MeasureTicket) -> pa.Table:
        """Rows of the ticket's lanes; refuses lanes of partitions that it does not own."""
        owned = [lease for lease in self.leases if (lease.run, lease.source) == (ticket.run, ticket.source)]
        rows: list[dict[str, Any]] = []
        for lane, unit, _, pos in ticket.cursors:
            if not any(lane % lease.partitions == lease.partition for lease in owned):
                raise ForbiddenError(f"lane {lane} of source {ticket.source} is not mine")
            rows += self._lane(ticket, lane, unit * ROWS + pos)
        self.asked.append((ticket.source, tuple(cursor[0] for cursor in ticket.cursors)))
        return pa.Table.from_pylist(rows, schema=METADATA)

    def _lane(self, ticket: MeasureTicket, lane: int, first: int) -> list[dict[str, Any]]:
        last = min(first + ticket.rows_per_lane, UNITS * ROWS)
        places = [divmod(n, ROWS) for n in range(first, last)]
        rows = [self.alter(synthetic_row(ticket.source, ticket.epoch, lane, unit, pos)) for unit, pos in places]
        is_end = first + ticket.rows_per_lane > UNITS * ROWS
        return [*rows, lane_end(ticket.source, ticket.epoch, lane)] if is_end else rows

    def kill(self) -> None:
        """Go without a word: the planner learns it from silence."""
        self.link.close(leave=False)
        self.service.stop(grace_s=0.2)

    def close(self) -> None:
        """Go in peace."""
        self.link.close()
        self.service.stop(grace_s=0.2)


class _MeasureService(FlightService):
    def __init__(self, loader: FakeLoader) -> None:
        super().__init__()
        self._loader = loader

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        opened = verify(ticket, self._loader.link.ticket_key)
        if isinstance(opened, ShowTicket):
            return fl.RecordBatchStream(shown(opened))
        assert isinstance(opened, MeasureTicket)
        return fl.RecordBatchStream(self._loader.measure(opened))


@dataclass(slots=True)
class FakeConstructor:
    """Holds dp ranks and acknowledges for them what the test tells it to. Its port takes connections, and is silent."""

    planner_url: str
    assignments: list[Assignment] = field(default_factory=list)
    released: list[StreamProgress] = field(default_factory=list)
    consumed: int = 0
    ranks: RankReport = field(default_factory=RankReport)
    link: ActorLink = field(init=False)
    address: str = field(init=False)
    _listener: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
        self.link = ActorLink(
            self.planner_url,
            role=Role.CONSTRUCTOR,
            address=self.address,
            on_desired=self._follow,
            report=self._report,
        )
        self.link.start()

    def acknowledge(self, step: int) -> None:
        """All ranks here have consumed the steps below `step`."""
        self.consumed = step
        self.link.beat()

    def _report(self) -> ActorReport:
        words = [
            StreamProgress(
                run=a.run,
                stream=a.stream,
                generation=a.generation,
                step=max(a.first_step, self.consumed),
                is_ready=True,
                ranks=self.ranks,
            )
            for a in self.assignments
        ]
        return ActorReport(acknowledged=words)

    def _follow(self, desired: HeartbeatReply) -> None:
        self.assignments, self.released = desired.assignments, desired.released

    def kill(self) -> None:
        """Go without a word."""
        self.link.close(leave=False)
        self._listener.close()

    def close(self) -> None:
        """Go in peace."""
        self.link.close()
        self._listener.close()


@dataclass(slots=True)
class Cluster:
    """One planner at a time on one state folder, and the fakes around it. Everything ends with the test."""

    state_dir: Path
    stack: ExitStack
    lease_s: float = 1.0
    database_url: str = ""
    planner_lease_s: float = 5.0
    retention: RetentionRules = field(default_factory=RetentionRules)
    server: PlannerServer = field(init=False)
    client: PlannerClient = field(init=False)

    def __post_init__(self) -> None:
        self._serve(port=0)

    def _serve(self, port: int) -> None:
        settings = PlannerSettings(
            state_dir=self.state_dir,
            database_url=self.database_url,
            port=port,
            heartbeat_s=0.05,
            lease_s=self.lease_s,
            checkpoint_steps=4,
            planner_lease_s=self.planner_lease_s,
            retention=self.retention,
        )
        self.server = self.stack.enter_context(PlannerServer(settings))
        self.client = PlannerClient(self.server.url)
        self.stack.callback(self.client.close)

    def restart(self) -> None:
        """Stop the planner and start another one on the same state and port."""
        port = int(self.server.url.rsplit(":", 1)[1])
        self.client.close()
        self.server.stop()
        self._serve(port=port)

    def loader(self, **kwargs: Any) -> FakeLoader:
        """Start a loader and wait until it is registered."""
        loader = FakeLoader(self.server.url, **kwargs)
        self.stack.callback(loader.close)
        assert loader.link.wait_registered(DEADLINE_S)
        return loader

    def constructor(self) -> FakeConstructor:
        """Start a constructor and wait until it is registered."""
        constructor = FakeConstructor(self.server.url)
        self.stack.callback(constructor.close)
        assert constructor.link.wait_registered(DEADLINE_S)
        return constructor

    def join(self, run: str = "run", stream: str = "train", **kwargs: Any) -> JoinReply:
        """One join of one rank, once."""
        request = JoinRequest(**({"rank": 0, "world_size": 1, "nonce": "n0"} | kwargs))
        return self.client.post(f"/runs/{run}/streams/{stream}/join", request, JoinReply)

    def open(self, world_size: int = 1, *, word: str = "n", **kwargs: Any) -> int:
        """Join as all ranks, one after the other until all have seen each other; returns the generation."""
        asks = [{"rank": rank, "nonce": f"{word}{rank}"} | kwargs for rank in reversed(range(world_size))]
        for ask in [*asks, *asks]:
            reply = self.join(world_size=world_size, **ask)
        assert reply.state == "open"
        return reply.generation

    def plans(
        self, first: int, last: int, *, generation: int = 0, stream: str = "train", **query: Any
    ) -> list[StepPlan]:
        """Ask for plans, once."""
        path = f"/runs/run/streams/{stream}/generations/{generation}/plans"
        return plans_from_bytes(self.client.request("GET", path, query={"first": first, "last": last} | query))

    def planned(self, last: int, **query: Any) -> list[StepPlan]:
        """Steps [0, last) when all of them are planned; waits for them."""
        return wait_for(
            lambda: plans if len(plans := self.plans(query.get("first", 0), last, wait_s=1, **query)) == last else None,
            what=f"{last} planned steps",
        )
