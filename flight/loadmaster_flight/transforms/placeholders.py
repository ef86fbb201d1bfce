"""Where media stand in a text: `<image>`, `<video>` and `<audio>`, one for each item, in the order of the columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..wire.schemas import MediaKind
from .sample import Outcome, bad

WRITTEN = {MediaKind.IMAGE: "<image>", MediaKind.VIDEO: "<video>", MediaKind.AUDIO: "<audio>"}
_KINDS = {text: kind for kind, text in WRITTEN.items()}
_ANY = re.compile("|".join(_KINDS))


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for an item; `value` is where its bytes are, None: the next one of the columns of its kind."""

    kind: MediaKind
    value: object = None


Part = str | Slot
Values = Mapping[MediaKind, Sequence[object]]
"""Of each kind that has columns, the row's values, in order; no nulls."""


def split_text(text: str, kinds: Collection[MediaKind]) -> list[Part]:
    """A text's parts; the placeholder of a kind that has no column is text like any other."""
    parts: list[Part] = []
    at = 0
    for found in _ANY.finditer(text):
        kind = _KINDS[found[0]]
        if kind in kinds:
            parts += [text[at : found.start()], Slot(kind)]
            at = found.end()
    return [*parts, text[at:]]


def fill_slots(texts: Sequence[Sequence[Part]], values: Values, *, first: int = 0) -> list[list[Part]] | Outcome:
    """Give the slots of some texts the row's items.

    Items of a kind that no text has a place for come first, before the text at index `first`.

    Returns:
        The texts with every slot filled, or BAD where places and items of a kind differ in number.
    """
    slots = [part for parts in texts for part in parts if isinstance(part, Slot) and part.value is None]
    ahead: list[Part] = []
    queues: dict[MediaKind, Iterator[object]] = {}
    for kind in MediaKind:
        items = values.get(kind, ())
        num_slots = sum(slot.kind is kind for slot in slots)
        if not num_slots:
            ahead += [Slot(kind, item) for item in items]
        elif num_slots != len(items):
            noun = kind.name.lower()
            return bad(f"the text has {num_slots} places for {noun}, the row has {len(items)} {noun} items")
        queues[kind] = iter(items)
    filled = [[_filled(part, queues) for part in parts] for parts in texts]
    filled[first] = ahead + filled[first]
    return filled


def _filled(part: Part, queues: Mapping[MediaKind, Iterator[object]]) -> Part:
    if isinstance(part, Slot) and part.value is None:
        return replace(part, value=next(queues[part.kind]))
    return part


@dataclass(frozen=True, slots=True)
class Mixed:
    """A text with media in it: one segment more than there are items, an item between any two of them."""

    segments: tuple[str, ...]
    items: tuple[Slot, ...]

    @staticmethod
    def of_parts(parts: Sequence[Part]) -> Mixed:
        segments, items = [""], []
        for part in parts:
            if isinstance(part, Slot):
                items.append(part)
                segments.append("")
            else:
                segments[-1] += part
        return Mixed(tuple(segments), tuple(items))
