"""Which row a sample is and what it says, for people: read again where nobody keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..sources.blocks import EndOfShardError
from ..wire.errors import BadRequestError
from ..wire.schemas import SHOWN, Verdict
from ..wire.tickets import ShowTicket
from .chunk import Chunk, Int64Array, Place
from .opened import OpenedSource

MAX_IMAGES = 64
MAX_PLACES = 1024
"""Samples of one ticket at most; each of them may be a block to read."""


def show(opened: OpenedSource, ticket: ShowTicket) -> pa.RecordBatch:
    """Answer a ticket, one row of schema SHOWN a sample, in the order asked for.

    Raises:
        BadRequestError: Too many places, or one that is none.
        UnavailableError: A block cannot be read now.
    """
    _check(ticket, len(opened.manifest.shards))
    orders: dict[Place, Int64Array] = {}
    rows = [_shown(opened, ticket, orders, *place) for place in ticket.places]
    if ticket.max_images >= 0:
        _add_images(opened, ticket, rows)
    return pa.RecordBatch.from_pylist(rows, schema=SHOWN)


def _add_images(opened: OpenedSource, ticket: ShowTicket, rows: list[dict[str, Any]]) -> None:
    """Pictures of the first samples that have any; of the others their number."""
    left = min(ticket.max_images, MAX_IMAGES)
    for row in rows:
        if row["row"] >= 0:
            place = Place(ticket.source, ticket.epoch, row["shard"], row["block"])
            row["num_images"], pictures = opened.thumbnails(place, row["row"], left)
            row["images"] = [picture._asdict() for picture in pictures]
            left -= len(pictures)


def _check(ticket: ShowTicket, num_shards: int) -> None:
    if len(ticket.places) > MAX_PLACES:
        raise BadRequestError(f"places must be at most {MAX_PLACES}, got {len(ticket.places)}")
    for place in ticket.places:
        if len(place) != 3 or min(place) < 0 or place[0] >= num_shards:
            raise BadRequestError(f"places must be [shard, block, number], shard in [0, {num_shards}), got {place}")


def _shown(
    opened: OpenedSource, ticket: ShowTicket, orders: dict[Place, Int64Array], shard: int, block: int, number: int
) -> dict[str, Any]:
    place = Place(ticket.source, ticket.epoch, shard, block)
    if place not in orders:
        orders[place] = _order(opened, place)
    order_N = orders[place]
    shown: dict[str, Any] = {"shard": shard, "block": block, "pos": -1, "row": -1, "num_tokens": -1}
    if number >= len(order_N):
        return shown | {"reason": f"the block has {len(order_N)} rows"}
    pos = int(np.flatnonzero(order_N == number)[0]) if ticket.by_row else number
    shown |= {"pos": pos, "row": int(order_N[pos])}
    return shown | (_content(opened, opened.make(place, pos, pos + 1, is_again=True)) if ticket.has_text else {})


def _order(opened: OpenedSource, place: Place) -> Int64Array:
    try:
        return opened.order(place)
    except EndOfShardError:
        return np.zeros(0, np.int64)


def _content(opened: OpenedSource, chunk: Chunk) -> dict[str, Any]:
    reason = chunk.reasons[0] if chunk.reasons is not None else None
    if chunk.verdict_N[0] != Verdict.OK:
        return {"reason": reason or Verdict(int(chunk.verdict_N[0])).name.lower()}
    text = "".join(_parts(opened, chunk))
    return {"num_tokens": len(chunk.tokens_T), "text": text}


def _parts(opened: OpenedSource, chunk: Chunk) -> Iterator[str]:
    """The text; media by the number of their tokens."""
    media, at = chunk.media[0] if chunk.media is not None else None, 0
    places = [] if media is None else opened.placeholders(media)
    for item, (start, num_tokens, _) in enumerate(places, 1):
        yield _decoded(opened, chunk, at, start)
        yield f"[media {item}: {num_tokens:,} tokens]"
        at = start + num_tokens
    yield _decoded(opened, chunk, at, len(chunk.tokens_T))


def _decoded(opened: OpenedSource, chunk: Chunk, start: int, stop: int) -> str:
    tokens_T = chunk.tokens_T[start:stop]
    text = opened.transform.decode(tokens_T) if len(tokens_T) else ""
    return " ".join(map(str, tokens_T.tolist())) if text is None else text
