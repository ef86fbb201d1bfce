"""The Flight service of a Source Loader: metadata for the planner, pieces for constructors."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl

from ..telemetry import log_fields
from ..wire.actions import Action
from ..wire.control import HeartbeatReply, VerdictReport
from ..wire.errors import BadRequestError, ForbiddenError, MovedError
from ..wire.flight import FlightService, guarded
from ..wire.http import PlannerClient, retrying
from ..wire.schemas import METADATA, PIECES, SHOWN
from ..wire.step_plan import StepPlan
from ..wire.tickets import MaterializeTicket, MeasureTicket, ShowTicket, verify
from ..wire.tls import Tls
from ..wire.tracing import StepPlace, step_span
from .admission import Admission
from .plan_slices import PlanSlices
from .runs import OpenRuns

LOG = logging.getLogger(__name__)
MESSAGE_BYTES = 8 << 20
MAX_ROWS = 1 << 13
"""Rows of one measure answer, all lanes together (but one a lane in any case): more are not done before a deadline."""
MEASURES_AT_ONCE = 16
STREAMS_AT_ONCE = 64
REPORT_DEADLINE_S = 10.0
SAMPLE = ["source", "epoch", "shard", "block", "row"]


class LoaderService(FlightService):
    """Serves MEASURE tickets (METADATA), MATERIALIZE tickets (PIECES, one or more messages a step, in order) and SHOW
    tickets (SHOWN).

    Args:
        runs: The engines.
        planner_url: Has the plans, takes verdicts.
        ticket_key: Gives the key that tickets are checked with.
        tls: To serve and to call the planner with; None: plain text, and what the environment says.
    """

    def __init__(
        self,
        runs: OpenRuns,
        *,
        planner_url: str,
        ticket_key: Callable[[], bytes],
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(host=host, port=port, tls=tls)
        self._runs, self._planner_url, self._ticket_key = runs, planner_url, ticket_key
        self._slices = PlanSlices(planner_url, tls=tls)
        self._measures = Admission(MEASURES_AT_ONCE, "measure calls")
        self._streams = Admission(STREAMS_AT_ONCE, "materialize streams")
        self._lock = threading.Lock()
        self._counts = {"measures": 0.0, "streams": 0.0, "steps_sent": 0.0, "bytes_sent": 0.0, "masked_pieces": 0.0}

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        """Open what a ticket names; see `FlightService`."""
        opened = verify(ticket, self._ticket_key())
        if self.draining.is_set():
            raise MovedError(f"loader {self.address} is stopping: resolve again")
        if isinstance(opened, MeasureTicket):
            return fl.RecordBatchStream(pa.Table.from_batches([self._measure(opened)], METADATA))
        if isinstance(opened, ShowTicket):
            with self._measures.place(), self._runs.using(opened.run) as engine:
                return fl.RecordBatchStream(pa.Table.from_batches([engine.show(opened)], SHOWN))
        if isinstance(opened, MaterializeTicket):
            _check(opened)
            return fl.GeneratorStream(PIECES, guarded(self._materialize(opened), self.refuse))
        raise ForbiddenError(f"a loader serves measure, materialize and show tickets, got a {type(opened).__name__}")

    def act(self, action: Action, body: dict[str, Any]) -> dict[str, Any]:
        """Run an action; see `FlightService`."""
        if action is Action.HEALTH:
            return {"status": "draining" if self.draining.is_set() else "ok"}
        raise BadRequestError(f"a loader has no action {action.value!r}")

    def follow(self, desired: HeartbeatReply) -> None:
        """Reconcile to a heartbeat's answer: free what every rank has, close runs that are not ours any more."""
        for progress in desired.released:
            engine = self._runs.engine_if_open(progress.run)
            for plan in self._slices.take_released(progress):
                if engine is not None:
                    engine.release(plan)
        self._runs.keep({lease.run for lease in desired.leases})

    def stats(self) -> dict[str, float]:
        """Counters, for people."""
        return self.counts() | self._runs.stats()

    def counts(self) -> dict[str, float]:
        """Those of all runs, those included that are closed."""
        with self._lock:
            return dict(self._counts)

    def _measure(self, ticket: MeasureTicket) -> pa.RecordBatch:
        if ticket.rows_per_lane < 1 or not ticket.cursors:
            raise BadRequestError(
                f"rows_per_lane and the number of cursors must be at least 1, "
                f"got {ticket.rows_per_lane} and {len(ticket.cursors)}"
            )
        rows_per_lane = min(ticket.rows_per_lane, max(1, MAX_ROWS // len(ticket.cursors)))
        with self._measures.place(), log_fields(run=ticket.run), self._runs.using(ticket.run) as engine:
            self._count(measures=1)
            return engine.measure(ticket.source, ticket.epoch, ticket.cursors, rows_per_lane)

    def _materialize(self, ticket: MaterializeTicket) -> Iterator[pa.RecordBatch]:
        """Yield step by step; the place is taken here, because a stream that is never read ends no generator."""
        with self._streams.place(), self._runs.using(ticket.run) as engine:
            self._count(streams=1)
            for plan in self._slices.of_ticket(ticket):
                if self.draining.is_set():
                    raise MovedError(f"loader {self.address} is stopping: resolve again")
                # One step at a time: a stream holds the pixels of the step it sends, and of no other.
                with _working_on(StepPlace(ticket.run, ticket.stream, ticket.generation, plan.step), len(plan.pieces)):
                    pieces = engine.materialize([plan], dp_ranks=ticket.dp_ranks, encoder_ranks=ticket.encoder_ranks)
                    self._report_masked(ticket, plan, pieces)
                self._count(steps_sent=1, bytes_sent=pieces.nbytes)
                yield from messages(pieces)

    def _report_masked(self, ticket: MaterializeTicket, plan: StepPlan, pieces: pa.RecordBatch) -> None:
        """Have failed content journaled before it is sent, but for what the journal has already."""
        masked = pieces.filter(pieces.column("is_masked"))
        self._count(masked_pieces=masked.num_rows)
        failed = {tuple(row[name] for name in SAMPLE): row for row in masked.select([*SAMPLE, "reason"]).to_pylist()}
        fresh = {sample: row for sample, row in failed.items() if sample not in plan.masked}
        if not fresh:
            return
        planner = PlannerClient(self._planner_url, tls=self._tls)
        try:
            for place in fresh.values():
                report = VerdictReport(stream=ticket.stream, generation=ticket.generation, step=plan.step, **place)
                LOG.warning("step %d: content failed when it was materialized: %s", plan.step, place)
                _post(planner, ticket.run, report)
        finally:
            planner.close()
        self._slices.mask(ticket, plan.step, list(fresh))

    def _count(self, **amounts: float) -> None:
        with self._lock:
            for name, amount in amounts.items():
                self._counts[name] += amount


@contextmanager
def _working_on(place: StepPlace, num_pieces: int) -> Iterator[None]:
    """What is logged and traced meanwhile is about this step."""
    with log_fields(**place._asdict()), step_span("materialize", place, pieces=num_pieces):
        yield


def _post(planner: PlannerClient, run: str, report: VerdictReport) -> None:
    retrying(lambda: planner.request("POST", f"/runs/{run}/verdicts", body=report), deadline_s=REPORT_DEADLINE_S)


def _check(ticket: MaterializeTicket) -> None:
    num_steps = ticket.last_step - ticket.first_step
    if num_steps < 0 or len(ticket.digests) != num_steps:
        raise BadRequestError(
            f"digests must hold one for each of {num_steps} steps from {ticket.first_step}, got {len(ticket.digests)}"
        )
    for triple in ticket.partitions:
        if len(triple) != 3 or not 0 <= triple[1] < triple[2]:
            raise BadRequestError(f"partitions must be [source, k, P] with 0 <= k < P, got {triple}")


def messages(pieces: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a step's pieces into messages of MESSAGE_BYTES, and at most its longest piece more."""
    if pieces.nbytes <= MESSAGE_BYTES:
        yield pieces
        return
    sizes_N = np.diff(pieces.column("tokens").offsets.to_numpy()) * 4
    for name in ("pixels", "audio"):
        sizes_N = sizes_N + pc.binary_length(pieces.column(name)).fill_null(0).to_numpy()
    bounds = np.flatnonzero(np.diff(np.cumsum(sizes_N) // MESSAGE_BYTES)) + 1
    for start, stop in itertools.pairwise([0, *bounds.tolist(), pieces.num_rows]):
        yield pieces.slice(start, stop - start)
