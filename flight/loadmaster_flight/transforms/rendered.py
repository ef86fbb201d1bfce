"""What a chat template yields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat:
    """Text of a chat.

    Attributes:
        spans: [start, stop) characters that the assistant says, in order.
        literals: Characters, ascending, at which content has the text of a special token.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    literals: tuple[int, ...] = ()
