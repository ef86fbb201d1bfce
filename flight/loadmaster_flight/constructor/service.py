"""The Flight service of a constructor: one stream of batches a rank, with heartbeats and an explicit end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from loadmaster_flight.wire.actions import Action
from loadmaster_flight.wire.errors import MovedError, UnavailableError
from loadmaster_flight.wire.flight import FlightService, guarded
from loadmaster_flight.wire.frames import Frame, FrameFlag
from loadmaster_flight.wire.tickets import RankTicket, verify_as
from loadmaster_flight.wire.tls import Tls
from loadmaster_flight.wire.tracing import StepPlace, record_step
from loadmaster_flight.wire.watchdog import BEAT_S

from .acknowledgement import Acknowledgement
from .builder import StreamBuilder
from .engine import ConstructorEngine

LOG = logging.getLogger(__name__)
Message = tuple[pa.RecordBatch, bytes]


class ConstructorService(FlightService):
    """Serves RANK tickets: one RecordBatch a step, in order, each with a `Frame` as app_metadata.

    While a step is not built a message without rows comes twice a second, whose frame says what is waited for. The last
    message has no rows either and says WINDOW_END with the step at which a new stream has to begin (the ticket's
    last_step; or earlier, where the schema changes because C ramps: the same ticket's position goes on), or STREAM_END
    with the number of steps of the stream. A stream that ends without either has broken off.

    What is bound is served for as long as it lasts, with the planner or without it: it comes out the same wherever it
    is built. Who waits for more at a constructor that is cut off from the planner is sent to ask who serves it now.

    Args:
        engine: What builds the steps.
        ticket_key: Gives the key that tickets are checked with.
        is_cut_off: Whether the planner has not heard of us for so long that others may have our ranks.
        tls: To serve with; None: plain text.
    """

    def __init__(
        self,
        engine: ConstructorEngine,
        *,
        ticket_key: Callable[[], bytes],
        is_cut_off: Callable[[], bool] = lambda: False,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: Tls | None = None,
    ) -> None:
        super().__init__(host=host, port=port, tls=tls)
        self._engine, self._ticket_key, self._is_cut_off = engine, ticket_key, is_cut_off

    def stream(self, ticket: bytes, context: fl.ServerCallContext) -> fl.FlightDataStream:
        if self.draining.is_set():
            raise UnavailableError("this constructor is shutting down")
        right = verify_as(RankTicket, ticket, self._ticket_key())
        builder = self._engine.reader(right)
        builder.open(right.rank, right.first_step)
        LOG.debug("rank %d reads from step %d on", right.rank, right.first_step, extra=_place(right, right.first_step))
        schema = builder.schema_at(right.rank, right.first_step, timeout_s=BEAT_S)
        return fl.GeneratorStream(schema, guarded(self._messages(builder, right, schema), self.refuse))

    def act(self, action: Action, body: dict[str, Any]) -> dict[str, Any]:
        match action:
            case Action.HEALTH:
                return {"status": "draining" if self.draining.is_set() else "ok"}
            case Action.ACK:
                return self._acknowledge(body)

    def _acknowledge(self, body: dict[str, Any]) -> dict[str, Any]:
        word = Acknowledgement.of(body)
        # A step may take longer than a ticket lives; one that was valid is proof enough of who acknowledges.
        ticket = verify_as(RankTicket, bytes.fromhex(word.ticket_hex), self._ticket_key(), now_s=0.0)
        self._engine.reader(ticket).acknowledge(ticket.rank, word)
        if word.is_leaving:
            LOG.info("rank %d closed its stream at step %d", ticket.rank, word.step, extra=_place(ticket, word.step))
        return {}

    def _messages(self, builder: StreamBuilder, ticket: RankTicket, schema: pa.Schema) -> Iterator[Message]:
        nothing = pa.RecordBatch.from_pylist([], schema=schema)

        def mark(flags: FrameFlag, step: int, text: str = "") -> Message:
            return nothing, Frame(flags=flags, generation=ticket.generation, step=step, text=text).pack()

        step = ticket.first_step
        while step < ticket.last_step:
            found = builder.wait(ticket.rank, step, timeout_s=BEAT_S)
            if self.draining.is_set():
                raise UnavailableError("this constructor is shutting down")
            if found is None and builder.is_over(step):
                yield mark(FrameFlag.STREAM_END, step)
                return
            if found is None and self._is_cut_off() and builder.is_stuck():
                raise MovedError("this constructor is cut off from the planner: ask it who serves the rank now")
            if found is None:
                yield mark(FrameFlag.HEARTBEAT, step, builder.status(step))
                continue
            batch, build_us = found
            if not batch.schema.equals(schema):
                break
            frame = Frame(flags=FrameFlag.LAST, generation=ticket.generation, step=step, build_us=build_us)
            builder.note_sent(batch)
            start_ns = time.time_ns()
            yield batch, frame.pack()
            place = StepPlace(ticket.run, ticket.stream, ticket.generation, step)
            record_step("serve", place, start_ns, rank=ticket.rank)
            step = builder.after(step)
        yield mark(FrameFlag.WINDOW_END, step)


def _place(ticket: RankTicket, step: int) -> dict[str, object]:
    """For the log."""
    place = {"run": ticket.run, "stream": ticket.stream, "generation": ticket.generation}
    return {**place, "rank": ticket.rank, "step": step}
