"""What a rank says when it acknowledges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadmaster_flight.wire.errors import BadRequestError

MAX_WAITS = 64
MAX_HOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A rank has consumed the steps before `step`.

    Attributes:
        ticket_hex: Says which rank it is.
        is_leaving: It closes its stream with that.
        waits: Step, and for how many seconds the rank waited for it, of steps that it has not told of before.
        host: Where it runs; empty: it does not say.
    """

    ticket_hex: str
    step: int
    is_leaving: bool = False
    waits: tuple[tuple[int, float], ...] = ()
    host: str = ""

    @staticmethod
    def of(body: Mapping[str, Any]) -> Acknowledgement:
        """Read one from an action's body; older clients say neither waits nor host.

        Raises:
            BadRequestError: A field is of another kind, or too long; names it.
        """
        ticket_hex, step, host = body.get("ticket_hex"), body.get("step"), body.get("host", "")
        if not isinstance(ticket_hex, str) or not isinstance(step, int):
            raise BadRequestError("an acknowledgement must have ticket_hex, a string, and step, an integer")
        if not isinstance(host, str) or len(host) > MAX_HOST:
            raise BadRequestError(f"host of an acknowledgement must be text of at most {MAX_HOST} characters")
        return Acknowledgement(
            ticket_hex=ticket_hex,
            step=step,
            is_leaving=body.get("is_leaving") is True,
            waits=_waits(body.get("waits", [])),
            host=host,
        )


def _waits(told: object) -> tuple[tuple[int, float], ...]:
    if not isinstance(told, list) or len(told) > MAX_WAITS or not all(_is_wait(one) for one in told):
        raise BadRequestError(f"waits of an acknowledgement must be at most {MAX_WAITS} pairs [step, seconds]")
    return tuple((step, float(wait_s)) for step, wait_s in told)


def _is_wait(told: object) -> bool:
    if not isinstance(told, list) or len(told) != 2:
        return False
    step, wait_s = told
    is_number = isinstance(wait_s, (int, float)) and not isinstance(wait_s, bool)
    return isinstance(step, int) and 0 <= step < 1 << 53 and is_number and math.isfinite(wait_s) and wait_s >= 0
