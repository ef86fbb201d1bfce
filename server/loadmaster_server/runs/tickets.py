"""Signs the tickets with which ranks read their steps."""

from __future__ import annotations

import time

from loadmaster_flight.wire.control import TicketReply, TicketRequest
from loadmaster_flight.wire.errors import BadRequestError, ForbiddenError, GoneError, NotReadyError
from loadmaster_flight.wire.tickets import RankTicket, sign

from ..store import GenerationKey, GenerationRecord, Store, StreamKey
from .mesh import coords_of

WINDOW_STEPS = 64
TICKET_LIFE_S = 3600.0


class TicketOffice:
    """Gives ranks their tickets. Any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def issue(self, key: StreamKey, request: TicketRequest) -> TicketReply:
        """A ticket for the next window of a rank's steps, and who serves them. It may outrun the plan.

        Raises:
            NotFoundError: There is no such generation.
            BadRequestError: Rank or step are not of the generation, or the rank does not fetch; names the field.
            GoneError: The generation is fenced, or all ranks are past that step.
            ForbiddenError: It is not the rank that asks.
            NotReadyError: No constructor is there that serves the rank.
        """
        place = GenerationKey(run=key.run, stream=key.stream, generation=request.generation)
        generation = self._store.generations.unfenced(place)
        _check(generation, request)
        joined = self._store.generations.joined_as(key, request.rank, request.nonce)
        if joined is None or joined.key != place:
            raise ForbiddenError(f"rank {request.rank} of {place} joined with another nonce: a ticket is for that rank")
        coords = coords_of(generation.mesh, request.rank)
        if not self._store.runs.definition(key.run).spec.mesh.fetches(coords):
            raise BadRequestError(f"rank must be of tp 0 where mesh.tp_mode is broadcast, got rank {request.rank}")
        dp_rank = coords["dp"]
        address = self._store.actors.constructor_of(place, dp_rank)
        if address is None:
            raise NotReadyError(
                f"no constructor is there yet that serves rank {request.rank} (dp {dp_rank}) of {place}"
            )
        last_step = request.first_step + WINDOW_STEPS
        ticket = RankTicket(
            run=key.run,
            stream=key.stream,
            generation=request.generation,
            rank=request.rank,
            first_step=request.first_step,
            last_step=last_step,
            expires_at=time.time() + TICKET_LIFE_S,
        )
        return TicketReply(address=address, ticket_hex=sign(ticket, self._store.ticket_key).hex(), last_step=last_step)


def _check(generation: GenerationRecord, request: TicketRequest) -> None:
    if not 0 <= request.rank < generation.world_size:
        raise BadRequestError(f"rank must be in [0, {generation.world_size}), got {request.rank}")
    if request.first_step < generation.first_step:
        raise BadRequestError(f"first_step must be at least {generation.first_step}, got {request.first_step}")
    if request.first_step < generation.acknowledged:
        past = f"all ranks are past step {request.first_step}: step {generation.acknowledged} is the first one left"
        raise GoneError(past, acknowledged=generation.acknowledged)
