"""Names of the Flight actions, shared by servers and clients."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """Every action takes and returns one JSON object, is idempotent and answers within five seconds.

    HEALTH: {} -> {status}. STATS: {} -> counters. ACK: {ticket_hex, step} -> {}: this rank has consumed steps < step;
    with is_leaving: true it closes its stream.
    DRAIN: {} -> {}: take no new work.
    """

    HEALTH = "health"
    STATS = "stats"
    ACK = "ack"
    DRAIN = "drain"
