"""Names of the Flight actions, shared by servers and clients."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """Every action takes and returns one JSON object, is idempotent and answers within five seconds.

    HEALTH: {} -> {status}, for everybody. ACK: {ticket_hex, step} -> {}: this rank has consumed steps < step; with
    is_leaving: true it closes its stream. What a process counts goes to the planner with its heartbeats, and what it is
    to do comes back with them: no action of its own is needed for either, and nobody else could ask for it.
    """

    HEALTH = "health"
    ACK = "ack"


MAX_ACTION_BYTES = 256 << 10
