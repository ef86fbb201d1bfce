"""Signed tickets: `version u8 | kind u8 | JSON payload | HMAC-SHA256[:16]`, verified without any look-up.

A ticket licenses retries until it expires: (run, stream, generation, rank, step) fully determines the bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .errors import BadRequestError, ForbiddenError, UnauthenticatedError

VERSION = 1
MAX_TICKET_BYTES = 64 << 10
_TAG_BYTES = 16


class TicketKind(IntEnum):
    RANK = 1
    MEASURE = 2
    MATERIALIZE = 3
    SHOW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTicket:
    """The right of one rank to read steps [first_step, last_step) of a generation of a stream."""

    run: str
    stream: str
    generation: int
    rank: int
    first_step: int
    last_step: int
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureTicket:
    """Planner -> loader: metadata of one partition of a source from per-lane cursors on.

    Attributes:
        cursors: Per lane of the partition, in lane order: [lane, unit_index, block_index, next_pos].
        rows_per_lane: How many rows to return per lane at most; a lane that ends returns a LANE_END row.
    """

    run: str
    source: int
    epoch: int
    cursors: list[list[int]]
    rows_per_lane: int
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeTicket:
    """Constructor -> loader: the pieces of steps [first_step, last_step) for some dp ranks from some partitions.

    Attributes:
        digests: The plan digest of each step, so that both sides speak of the same plan.
        partitions: [source, k, P] triples: lanes l of the source with l mod P = k.
        encoder_ranks: Ranks of the mesh whose images are wanted, of whatever bin, where the plan says who encodes them.
    """

    run: str
    stream: str
    generation: int
    first_step: int
    last_step: int
    digests: list[str]
    dp_ranks: list[int]
    partitions: list[list[int]]
    expires_at: float
    encoder_ranks: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTicket:
    """Planner -> loader: which rows some samples of a source are, for people; answered with the schema SHOWN.

    Attributes:
        places: [shard, block, position in the block's order] of each; with `by_row`, its row in the block instead.
        has_text: Whether their tokens are wanted as text.
        max_images: Small pictures of their images that are wanted, all samples together; -1: not even their number.
    """

    run: str
    source: int
    epoch: int
    places: list[list[int]]
    by_row: bool
    has_text: bool
    expires_at: float
    max_images: int = -1


Ticket = RankTicket | MeasureTicket | MaterializeTicket | ShowTicket
_CLASSES: dict[TicketKind, type[Any]] = {
    TicketKind.RANK: RankTicket,
    TicketKind.MEASURE: MeasureTicket,
    TicketKind.MATERIALIZE: MaterializeTicket,
    TicketKind.SHOW: ShowTicket,
}
_KINDS = {cls: kind for kind, cls in _CLASSES.items()}
_HINTS = {cls: get_type_hints(cls) for cls in _KINDS}
T = TypeVar("T", RankTicket, MeasureTicket, MaterializeTicket, ShowTicket)


def sign(ticket: Ticket, key: bytes) -> bytes:
    """Serialise and sign a ticket."""
    body = bytes([VERSION, _KINDS[type(ticket)]]) + json.dumps(asdict(ticket), separators=(",", ":")).encode()
    return body + hmac.new(key, body, hashlib.sha256).digest()[:_TAG_BYTES]


def verify(data: bytes, key: bytes, *, now_s: float | None = None) -> Ticket:
    """Check signature and expiry and return the ticket.

    Raises:
        BadRequestError: Not a ticket, or of another version.
        UnauthenticatedError: There is none, or it is forged or expired.
    """
    if not data:
        raise UnauthenticatedError("there is no ticket: get one from the planner")
    if not _TAG_BYTES + 2 < len(data) <= MAX_TICKET_BYTES:
        raise BadRequestError(f"a ticket must have {_TAG_BYTES + 3} to {MAX_TICKET_BYTES} bytes, got {len(data)}")
    body, tag = data[:-_TAG_BYTES], data[-_TAG_BYTES:]
    if body[0] != VERSION or body[1] not in _CLASSES:
        raise BadRequestError(
            f"ticket version and kind must be {VERSION} and 1..{len(_CLASSES)}, got {body[0]} and {body[1]}"
        )
    if not hmac.compare_digest(tag, hmac.new(key, body, hashlib.sha256).digest()[:_TAG_BYTES]):
        raise UnauthenticatedError("the ticket's signature does not match: get a new one from the planner")
    ticket = _parse(_CLASSES[TicketKind(body[1])], body[2:])
    if ticket.expires_at < (time.time() if now_s is None else now_s):
        raise UnauthenticatedError("the ticket has expired: get a new one from the planner", expired=True)
    return ticket


def _parse(cls: type[Any], payload: bytes) -> Ticket:
    try:
        values = json.loads(payload)
        ticket: Ticket = cls(**values)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRequestError(f"the ticket's payload is not of its kind: {error}") from error
    for name, hint in _HINTS[cls].items():
        if not _is_of(hint, values[name]):
            raise BadRequestError(f"{name} of a {cls.__name__} must be of type {cls.__annotations__[name]}")
    return ticket


def _is_of(hint: Any, value: Any) -> bool:
    """Whether a JSON value is of a field's type; whole numbers are those of 64 bits."""
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_is_of(get_args(hint)[0], item) for item in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
    return isinstance(value, hint)


def verify_as(cls: type[T], data: bytes, key: bytes, *, now_s: float | None = None) -> T:
    """`verify`, and refuse any other kind of ticket.

    Raises:
        ForbiddenError: It is a ticket for something else.
    """
    ticket = verify(data, key, now_s=now_s)
    if not isinstance(ticket, cls):
        raise ForbiddenError(f"expected a {cls.__name__}, got a {type(ticket).__name__}")
    return ticket
