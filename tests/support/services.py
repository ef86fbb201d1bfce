"""A planner over real HTTP and a loader over real Flight, both with content made up by rule, for one run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.control import (
    ActorView,
    Assignment,
    CreateRunRequest,
    HeartbeatReply,
    JoinReply,
    LeftOutView,
    LoaderRoute,
    RankView,
    RegisterReply,
    Role,
    RunView,
    StreamProgress,
    StreamView,
    SuspectReply,
    TicketReply,
    to_json,
)
from loadmaster_flight.wire.errors import GoneError, LoadmasterError, NotFoundError, NotReadyError, to_problem
from loadmaster_flight.wire.flight import FlightService
from loadmaster_flight.wire.schemas import PIECES
from loadmaster_flight.wire.step_plan import Pieces, StepPlan, plans_to_bytes
from loadmaster_flight.wire.tickets import MaterializeTicket, RankTicket, sign, verify_as

from .pictures import HOP, VISION, Doc, plan_of, sent

KEY = b"k" * 32
RUN = "demo"
SOURCES = ["prose", "code"]


def wait_until(condition: Callable[[], object], what: str, *, deadline_s: float = 20.0) -> None:
    """Poll until it holds."""
    until_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until_s, f"{what} did not happen within {deadline_s} s"
        threading.Event().wait(0.005)


def num_tokens_of(pos: int) -> int:
    """Length of the sample at a position."""
    return 3 + 5 * pos % 11


def plan_at(step: int, *, seq_len: int, num_bins: int, dp: int, num_steps: int | None) -> StepPlan:
    """One whole sample in each bin but the last bin, which has two."""
    num = num_bins + 1
    pos = np.arange(step * num, (step + 1) * num)
    zeros = np.zeros(num, np.int64)
    pieces = Pieces(
        source=pos % 2,
        epoch=zeros,
        lane=pos % 4,
        shard=zeros,
        block=zeros,
        pos=pos,
        first_token=zeros,
        num_tokens=zeros - 1,
        bin=np.minimum(np.arange(num), num_bins - 1),
    )
    sizes = [num_tokens_of(int(p)) for p in pos]
    return StepPlan(
        step=step,
        num_bins=num_bins,
        seq_len=seq_len,
        dp=dp,
        is_final=step + 1 == num_steps,
        num_tokens=sum(sizes),
        global_valid_tokens=sum(sizes) - num,
        weights_S=np.array([1 << 29, 1 << 29]),
        source_tokens_S=np.array([sum(sizes), 0]),
        pieces=pieces.take(pieces.canonical_order()),
    ).with_digest()


class FakeLoader(FlightService):
    """Materializes any plan of `planner`. `faults` are raised by the next calls, one each."""

    def __init__(self, planner: FakePlanner) -> None:
        self.planner = planner
        self.faults: list[LoadmasterError] = []
        self.tickets: list[MaterializeTicket] = []
        self.gate = threading.Event()
        self.gate.set()
        super().__init__()

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        request = verify_as(MaterializeTicket, ticket, KEY)
        self.tickets.append(request)
        self.gate.wait(30)
        if self.faults:
            raise self.faults.pop(0)
        plans = [self.planner.plan(step) for step in range(request.first_step, request.last_step)]
        assert [plan.digest for plan in plans] == request.digests
        if self.planner.pictures is not None:
            return fl.RecordBatchStream(self._with_pictures(plans, request))
        slices = [plan.of_ranks(set(request.dp_ranks)).of_partitions(request.partitions) for plan in plans]
        return fl.RecordBatchStream(pa.Table.from_batches([_pieces(plan) for plan in slices], schema=PIECES))

    def _with_pictures(self, plans: list[StepPlan], request: MaterializeTicket) -> pa.Table:
        assert self.planner.pictures is not None
        spec, asked = RunSpec.model_validate(self.planner.spec()), (request.dp_ranks, request.encoder_ranks)
        tables = [
            sent(
                plan.of_partitions(request.partitions),
                self.planner.pictures(plan.step),
                spec,
                dp_ranks=asked[0],
                encoder_ranks=asked[1],
            )
            for plan in plans
        ]
        return pa.concat_tables(tables)


def _pieces(plan: StepPlan) -> pa.RecordBatch:
    p = plan.pieces
    rows = [
        {
            "step": plan.step,
            **{name: int(getattr(p, name)[i]) for name in ("bin", "source", "epoch", "shard", "block", "pos")},
            "row": int(p.pos[i]),
            "first_token": 0,
            "num_tokens": num_tokens_of(int(p.pos[i])),
            "tokens": [1000 * int(p.pos[i]) + j for j in range(num_tokens_of(int(p.pos[i])))],
            "loss_spans": None,
            "is_masked": False,
        }
        for i in range(len(p))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=PIECES)


class FakePlanner:
    """One run of `num_steps` steps (None: endless) on `world_size` ranks, each a dp rank.

    `absent` ranks never join; `seq_len_at` may ramp C; every constructor that registers is assigned all ranks, the
    newest one gets the tickets. An `outage` is its answer to everything. `pictures` make the documents of a step, whose
    images `encoders` encode (None: they stay with the documents). `close` it.
    """

    def __init__(
        self, *, num_steps: int | None = None, world_size: int = 1, num_bins: int = 2, lease_s: float = 5.0
    ) -> None:
        self.num_steps, self.world_size, self.num_bins = num_steps, world_size, num_bins
        self.seq_len_at: Callable[[int], int] = lambda step: 32
        self.absent: list[int] = []
        self.behind: list[RankView] = []
        self.waiting_text = ""
        self.generation, self.first_step, self.window_steps = 1, 0, 8
        self.plan_fault: LoadmasterError | None = None
        self.outage: LoadmasterError | None = None
        self.lease_s = lease_s
        self.verdict_gate = threading.Event()
        self.planned = 1 << 30 if num_steps is None else num_steps
        self.acknowledged = 0
        self.constructors: dict[str, str] = {}
        self.routes: list[LoaderRoute] = []
        self.requests: list[tuple[str, Any]] = []
        self.budgets: dict[str, int] = {}
        self.mesh: dict[str, int] = {"pp": 1, "dp": world_size, "cp": 1, "tp": 1}
        self.tp_mode = "read"
        self.pictures: Callable[[int], list[Doc]] | None = None
        self.encoders: list[int] | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.loader = FakeLoader(self)
        self.route_to(self.loader)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def plan(self, step: int) -> StepPlan:
        if self.pictures is not None:
            return plan_of(
                self.pictures(step),
                RunSpec.model_validate(self.spec()),
                dp=self.mesh["dp"],
                ranks=self.encoders,
                step=step,
                is_final=step + 1 == self.num_steps,
            )
        return plan_at(
            step,
            seq_len=self.seq_len_at(step),
            num_bins=self.num_bins,
            dp=self.mesh["dp"],
            num_steps=self.num_steps,
        )

    def route_to(self, *loaders: FakeLoader) -> None:
        """Partitions k of P by source, dealt to the loaders in turn."""
        num = len(loaders)
        self.routes = [
            LoaderRoute(address=loader.address, partitions=[[s, k, num] for s in range(2)])
            for k, loader in enumerate(loaders)
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.loader.gate.set()
        self.loader.stop()

    def __enter__(self) -> FakePlanner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """Route one request; bytes are an Arrow body, the rest JSON."""
        self.requests.append((f"{method} {path}", body if body is not None else query))
        if self.outage is not None:
            raise self.outage
        match [method, *path.strip("/").split("/")[2:]]:
            case ["POST", "actors"]:
                self.constructors[body["incarnation"]] = body["address"]
                return RegisterReply(
                    actor_id=body["incarnation"], ticket_key_hex=KEY.hex(), heartbeat_s=0.02, lease_s=self.lease_s
                )
            case ["POST", "actors", _, "heartbeat"]:
                return self._heartbeat(body)
            case ["POST", "actors", "suspects"]:
                self.verdict_gate.wait(30.0)
                return SuspectReply(is_gone=True)
            case ["GET", "actors"]:
                return [to_json(view) for view in self.actor_views()]
            case ["DELETE", "actors", actor]:
                self.constructors.pop(actor, None)
                return {}
            case ["GET", "runs"]:
                return [to_json(self.run_view())]
            case ["POST", "runs", run, "resume"]:
                return self._resume(run)
            case ["GET", "runs", _, "definition"]:
                return CreateRunRequest(spec=self.spec(), manifests=[])
            case ["GET", "runs", _, "streams", _]:
                return self.stream_view()
            case ["GET", "runs", _, "streams", _, "left-out"]:
                return [to_json(LeftOutView(source=SOURCES[0], verdict="bad", count=1200, last_reason="no JPEG"))]
            case ["POST", "runs", run, "streams", _, "join"]:
                return self._join(run, body)
            case ["POST", "runs", _, "streams", _, "tickets"]:
                return self._ticket(body)
            case ["GET", "runs", _, "streams", _, "generations", _, "plans"]:
                return self._plans(query)
        raise NotFoundError(f"no such path: {method} {path}")

    def spec(self) -> dict[str, Any]:
        transform = {"text": "text"}
        return {
            "run": RUN,
            "sources": {name: {"uri": f"{name}.jsonl", "transform": transform} for name in SOURCES},
            "mixture": {"weights": dict.fromkeys(SOURCES, 1)},
            "batch": {"seq_len": self.seq_len_at(0), "microbatches": self.num_bins, "align": 4},
            "budgets": self.budgets,
            "mesh": {"tp_mode": self.tp_mode},
            "media": {} if self.pictures is None else {"vision": VISION, "audio": {"hop": HOP}},
        }

    def run_view(self) -> RunView:
        return RunView(run=RUN, state="open", reason="", revision=1, streams=["train"])

    def actor_views(self) -> list[ActorView]:
        return [
            ActorView(
                actor_id=f"constructor-{i}",
                role=Role.CONSTRUCTOR,
                address=address,
                pid=4711,
                heartbeat_age_s=0.25,
                stats={"steps_built": 1234.0, "built_bytes": float(3 << 19)},
            )
            for i, address in enumerate(self.constructors.values())
        ]

    def stream_view(self) -> StreamView:
        return StreamView(
            run=RUN,
            stream="train",
            generation=self.generation,
            state="open",
            reason="",
            planned=self.planned,
            bound=self.planned,
            acknowledged=self.acknowledged,
            is_planned_to_end=self.num_steps is not None and self.planned >= self.num_steps,
            waiting_for=list(self.absent),
            ranks=self.behind,
            waiting_text=self.waiting_text,
            source_names=SOURCES,
            source_tokens=[300, 100],
            source_weights=[0.5, 0.5],
        )

    def _assignment(self) -> Assignment:
        shape = tuple(self.mesh.values())
        dp_of_rank = np.unravel_index(np.arange(self.world_size), shape)[list(self.mesh).index("dp")]
        return Assignment(
            run=RUN,
            stream="train",
            generation=self.generation,
            first_step=self.first_step,
            ranks=list(range(self.world_size)),
            dp_of_rank=dp_of_rank.tolist(),
            mesh=self.mesh,
            build_ahead=3,
            loaders=self.routes,
        )

    def _heartbeat(self, body: dict[str, Any]) -> HeartbeatReply:
        if body["incarnation"] not in self.constructors:
            raise NotFoundError("no such actor")
        for progress in body["acknowledged"]:
            if progress["generation"] == self.generation:
                self.acknowledged = max(self.acknowledged, progress["step"])
        word = StreamProgress(
            run=RUN, stream="train", generation=self.generation, step=self.acknowledged, status=self.waiting_text
        )
        return HeartbeatReply(assignments=[] if body["is_leaving"] else [self._assignment()], released=[word])

    def _join(self, run: str, body: dict[str, Any]) -> JoinReply:
        if run != RUN:
            raise NotFoundError(f"there is no run {run!r}")
        if self.absent:
            return JoinReply(state="waiting", waiting_for=self.absent)
        if body["step"] != self.first_step:
            self.first_step, self.acknowledged, self.generation = body["step"], body["step"], self.generation + 1
        return JoinReply(
            state="open",
            generation=self.generation,
            first_step=self.first_step,
            coords=self._coords(body["rank"]),
            mesh=self.mesh,
            source_names=SOURCES,
            layout="pack",
            tp_mode=self.tp_mode,
        )

    def _resume(self, run: str) -> RunView:
        if run != RUN:
            raise NotFoundError(f"there is no run {run!r}")
        self.plan_fault = None
        return self.run_view()

    def _coords(self, rank: int) -> dict[str, int]:
        index = np.unravel_index(rank, tuple(self.mesh.values()))
        return {axis: int(i) for axis, i in zip(self.mesh, index, strict=True)}

    def _ticket(self, body: dict[str, Any]) -> TicketReply:
        if body["generation"] != self.generation:
            raise GoneError(f"generation {body['generation']} is fenced")
        if not self.constructors:
            raise NotReadyError("no constructor is there yet")
        last_step = body["first_step"] + self.window_steps
        ticket = RankTicket(
            run=RUN,
            stream="train",
            generation=self.generation,
            rank=body["rank"],
            first_step=body["first_step"],
            last_step=last_step,
            expires_at=time.time() + 60,
        )
        address = list(self.constructors.values())[-1]
        return TicketReply(address=address, ticket_hex=sign(ticket, KEY).hex(), last_step=last_step)

    def _plans(self, query: dict[str, str]) -> bytes:
        if self.plan_fault is not None:
            raise self.plan_fault
        first, last = int(query["first"]), min(int(query["last"]), self.planned)
        ranks = (
            {int(rank) for rank in query["dp_ranks"].split(",")} if "dp_ranks" in query else set(range(self.mesh["dp"]))
        )
        encoders = {int(rank) for rank in query.get("encoder_ranks", "").split(",") if rank}
        return plans_to_bytes([self.plan(step).of_ranks(ranks, encoders) for step in range(first, last)])


def _handler(planner: FakePlanner) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._handle()

        def do_POST(self) -> None:
            self._handle()

        def do_DELETE(self) -> None:
            self._handle()

        def log_message(self, *_: object) -> None:
            """Keep test output clean."""

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            try:
                status, reply = 200, planner.answer(self.command, parts.path, query, body)
            except LoadmasterError as error:
                status, reply = error.http_status, to_problem(error)
            self._send(status, reply)

        def _send(self, status: int, reply: Any) -> None:
            is_message = not isinstance(reply, (bytes, dict, list))
            data = reply if isinstance(reply, bytes) else json.dumps(to_json(reply) if is_message else reply).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def served(planner: FakePlanner) -> Iterator[Any]:
    """For fixtures: a real constructor process object of a planner."""
    from loadmaster_flight.constructor.process import ConstructorProcess

    with ConstructorProcess(planner.url) as process:
        yield process
