"""Media in chats: in the text of a message, or as parts of its content. Templates see marks in their places."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from ..wire.schemas import MediaKind
from .chat import chat_of, message_faults
from .chat_template import ChatTemplate
from .placeholders import Part, Slot, Values, fill_slots, split_text
from .rendered import RenderedChat
from .sample import Outcome, bad
from .special_text import Message

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
_MARK_LENGTH = 24
_PART_KINDS = {
    "image": MediaKind.IMAGE,
    "image_url": MediaKind.IMAGE,
    "video": MediaKind.VIDEO,
    "audio": MediaKind.AUDIO,
}
_VALUE_KEYS = ("bytes", "path", "url")


@dataclass(frozen=True, slots=True)
class MixedChat:
    """A rendered chat with media in it: item i stands at character places[i] of its text."""

    chat: RenderedChat
    items: tuple[Slot, ...]
    places: tuple[int, ...]

    def segments(self) -> list[RenderedChat]:
        """The text between the items as chats without spans; offsets into one count from its own start."""
        edges = [0, *self.places, len(self.chat.text)]
        return [self._segment(start, stop) for start, stop in itertools.pairwise(edges)]

    def _segment(self, start: int, stop: int) -> RenderedChat:
        literals = tuple(place - start for place in self.chat.literals if start <= place < stop)
        return RenderedChat(text=self.chat.text[start:stop], spans=(), literals=literals)


class MixedChatReader:
    """Renders the messages of rows that may have media. Any thread may call it.

    Args:
        template: Renders them.
        kinds: Kinds that have columns: their `<image>` in a text is a place for an item.
    """

    def __init__(self, template: ChatTemplate, kinds: Collection[MediaKind]) -> None:
        self._template, self._kinds = template, frozenset(kinds)
        # Nobody can write the mark: it is drawn at random and never leaves the process. No filter changes its case.
        self._mark = "".join(secrets.choice(_NONCHARACTERS) for _ in range(_MARK_LENGTH))
        self._marks = re.compile(f"{self._mark}([0-9]+){self._mark}")

    def read(self, messages: object, values: Values) -> MixedChat | RenderedChat | Outcome:
        """Render a row's messages with its items in their places."""
        if not _is_chat(messages):
            return chat_of(messages, self._template)  # says what is wrong with it
        return self._mixed(messages, values)

    def _mixed(self, messages: Sequence[Message], values: Values) -> MixedChat | RenderedChat | Outcome:
        texts: list[list[Part]] = []
        for index, message in enumerate(messages):
            parts = _parts_of(index, message.get("content"), self._kinds)
            if isinstance(parts, Outcome):
                return parts
            texts.append(parts)
        filled = fill_slots(texts, values, first=_first_user(messages))
        return filled if isinstance(filled, Outcome) else self._rendered(messages, filled)

    def _rendered(
        self, messages: Sequence[Message], texts: Sequence[Sequence[Part]]
    ) -> MixedChat | RenderedChat | Outcome:
        items: list[Slot] = []
        marked = []
        for message, parts in zip(messages, texts, strict=True):
            content = "".join(self._marked(part, items) for part in parts)
            has_none = message["content"] is None and not content
            marked.append({**message, "content": None if has_none else content})
        chat = chat_of(marked, self._template)
        return self._taken(chat, items) if isinstance(chat, RenderedChat) and items else chat

    def _marked(self, part: Part, items: list[Slot]) -> str:
        if isinstance(part, str):
            return part
        items.append(part)
        return f"{self._mark}{len(items) - 1}{self._mark}"

    def _taken(self, chat: RenderedChat, items: Sequence[Slot]) -> MixedChat | Outcome:
        """The chat without marks, and where they were."""
        found = list(self._marks.finditer(chat.text))
        order = [int(mark[1]) for mark in found]
        if sorted(order) != list(range(len(items))):
            return bad("chat template: must write each image, video and audio once, and leaves out or repeats one")

        def moved(place: int) -> int:
            return place - sum(min(place, mark.end()) - mark.start() for mark in found if mark.start() < place)

        spans = tuple((moved(start), moved(stop)) for start, stop in chat.spans)
        text, literals = self._marks.sub("", chat.text), tuple(map(moved, chat.literals))
        rendered = replace(chat, text=text, spans=spans, literals=literals)
        places = tuple(moved(mark.start()) for mark in found)
        return MixedChat(rendered, tuple(items[index] for index in order), places)


def _is_chat(messages: object) -> TypeGuard[Sequence[Message]]:
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        return False
    return bool(messages) and not any(message_faults(messages))


def _first_user(messages: Sequence[Message]) -> int:
    """Which message gets the items that no text has a place for."""
    return next((i for i, message in enumerate(messages) if message["role"] == "user"), 0)


def _parts_of(index: int, content: object, kinds: Collection[MediaKind]) -> list[Part] | Outcome:
    """A message's content as text and places of items."""
    if content is None:
        return []
    if isinstance(content, str):
        return split_text(content, kinds)
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        return bad(f"messages[{index}].content must be a string or a list of parts, got {type(content).__name__}")
    parts: list[Part] = []
    for place, part in enumerate(content):
        found = _part_of(part)
        if found is None:
            told = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            rule = "must be a part of type text, image, video or audio"
            return bad(f"messages[{index}].content[{place}] {rule}, got {told!r}")
        parts += split_text(found, kinds) if isinstance(found, str) else [found]
    return parts


def _part_of(part: object) -> Part | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    return Slot(_PART_KINDS[kind], _value_of(part, kind)) if kind in _PART_KINDS else None


def _value_of(part: Mapping[str, object], kind: str) -> object:
    """Where a part has its item's bytes: `{type: image, image: ...}`, or bytes, path or url beside the type."""
    value = part.get(kind)
    if isinstance(value, Mapping) and value.get("url") is not None:
        return value["url"]
    if value is not None:
        return value
    return next((part[key] for key in _VALUE_KEYS if part.get(key) is not None), None)
