"""Chats: a list of messages becomes text through a template, and the assistant's part of it the loss.

# n = tokens of one chat, k = spans of one chat
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..sources.blocks import RowFault
from .chat_template import ChatTemplate
from .function import judged
from .rendered import RenderedChat
from .sample import Int32Array, Outcome, bad, skipped
from .special_text import Message


def chat_of(value: object, template: ChatTemplate) -> RenderedChat | Outcome:
    """Render a row's messages, or say why there is nothing to render."""
    if value is None:
        return skipped("null messages")
    if isinstance(value, RowFault):
        return bad(value.reason)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return bad(f"messages must be a list, got {type(value).__name__}")
    if not value:
        return skipped("empty messages")
    fault = next(message_faults(value), None)
    if fault is not None:
        return bad(fault)
    messages = [_without_nulls(message) for message in value]
    rendered = judged(lambda: template.render(messages), blame="chat template: ")
    return rendered if isinstance(rendered, Outcome) else _encodable(rendered)


def message_faults(messages: Sequence[object]) -> Iterator[str]:
    """What keeps a list from being a chat."""
    return filter(None, map(_fault_of, range(len(messages)), messages))


def _fault_of(index: int, message: object) -> str | None:
    if not isinstance(message, Mapping):
        return f"messages[{index}] must be an object, got {type(message).__name__}"
    for key in ("role", "content"):
        if key not in message:
            return f"messages[{index}] must have {key!r}"
    if not isinstance(message["role"], str):
        return f"messages[{index}].role must be a string, got {type(message['role']).__name__}"
    return None


def _without_nulls(message: Message) -> Message:
    """Columns of structs have every key in every row; a template must not take a null for a key that is there."""
    return {key: item for key, item in message.items() if item is not None or key == "content"}


def _encodable(rendered: RenderedChat) -> RenderedChat | Outcome:
    try:
        rendered.text.encode()
    except UnicodeEncodeError:
        return bad("messages have a lone surrogate")
    return rendered if rendered.spans else skipped("no turn of the assistant")


def token_spans(spans: Sequence[tuple[int, int]], offsets_n2: Int32Array) -> Int32Array:
    """Turn character spans into token spans, int32 (k, 2): a token counts when it has a character inside.

    Args:
        spans: Ascending, disjoint [start, stop) characters.
        offsets_n2: Shape (n, 2), [start, stop) characters of each token, ascending.
    """
    start_n, stop_n = offsets_n2[:, 0], offsets_n2[:, 1]
    first_k = np.searchsorted(stop_n, [start for start, _ in spans], side="right")
    last_k = np.searchsorted(start_n, [stop for _, stop in spans], side="left")
    return np.stack([first_k, last_k], axis=1).astype(np.int32)
