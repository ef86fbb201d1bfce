"""The tokens of a sample as a text that a person reads: media by their sizes, what counts for the loss in green.

# n = tokens of one sample
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from loadmaster_flight.transforms import Measured, Transform
from loadmaster_flight.wire.media import MediaItem
from loadmaster_flight.wire.schemas import MediaKind

COUNTED, NOT_COUNTED, PLACEHOLDERS = "green", "dim", "cyan"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the placeholders of an item are, and what is shown instead."""

    start: int
    stop: int
    label: str


def text_of(measured: Measured, transform: Transform) -> Text:
    """Text of the first measured row: empty unless it is OK, its ids where there is no tokenizer."""
    tokens_n = measured.row_tokens(0)
    places = list(_places(measured, transform))
    spans = measured.loss_spans[0] if measured.loss_spans is not None else None
    text, at = Text(), 0
    for place in [*places, _Place(start=len(tokens_n), stop=len(tokens_n), label="")]:
        for start, stop, style in _runs(at, place.start, None if spans is None else spans.reshape(-1, 2)):
            text.append(_decoded(tokens_n[start:stop], transform), style)
        text.append(place.label, PLACEHOLDERS)
        at = place.stop
    return text


def _places(measured: Measured, transform: Transform) -> Iterator[_Place]:
    media = measured.media[0] if measured.media is not None else None
    if media is None or transform.media is None:
        return
    for number, item in enumerate(media.items, 1):
        num_tokens = transform.media.num_tokens(item.kind, item.grid)
        label = f"[{item.kind.name.lower()} {number}: {_size(item)}, {num_tokens:,} tokens]"
        yield _Place(start=item.token_start, stop=item.token_start + num_tokens, label=label)


def _size(item: MediaItem) -> str:
    if item.kind is MediaKind.AUDIO:
        return f"{item.grid[0]:,} frames"
    return f"{' x '.join(map(str, item.grid))} patches"


def _runs(start: int, stop: int, spans_k2: np.ndarray | None) -> Iterator[tuple[int, int, str]]:
    """Parts of [start, stop) that count for the loss and that do not; without spans one part without a style."""
    if spans_k2 is None:
        yield start, stop, ""
        return
    at = start
    for span_start, span_stop in spans_k2.clip(start, stop).tolist():
        yield at, span_start, NOT_COUNTED
        yield span_start, span_stop, COUNTED
        at = span_stop
    yield at, stop, NOT_COUNTED


def _decoded(tokens_n: np.ndarray, transform: Transform) -> str:
    text = transform.decode(tokens_n) if len(tokens_n) else ""
    return " ".join(map(str, tokens_n.tolist())) if text is None else text
