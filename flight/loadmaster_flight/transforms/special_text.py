"""Special tokens' text inside content: whoever wrote a row must not write control tokens.

A chat's text is made of the template's parts and the content's. Content that holds the text of a special token is
marked before it is rendered, so that it can be told from what the template writes; it is then encoded as plain text.

# n = tokens of one chat
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .rendered import RenderedChat
from .sample import Int32Array
from .tokenizer import TokenizerFile

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
_MARK_LENGTH = 24
Message = Mapping[str, Any]


class ContentMarks:
    """Marks special tokens' text in messages, and takes the marks out of what is rendered. Any thread may call it.

    What a template puts together from several parts, or cuts out of a longer text, is the template's.

    Args:
        texts: Texts of the special tokens.
    """

    def __init__(self, texts: Collection[str]) -> None:
        # Nobody can write the mark: it is drawn at random and never leaves the process. No filter changes its case.
        self._mark = "".join(secrets.choice(_NONCHARACTERS) for _ in range(_MARK_LENGTH))
        longest_first = sorted((re.escape(text) for text in texts if text), key=len, reverse=True)
        self._special = re.compile("|".join(longest_first)) if longest_first else None

    def put(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, with a mark inside every special token's text; the same object where there is none."""
        if self._special is None or not any(self._is_found(message) for message in messages):
            return messages
        return [self._marked(message) for message in messages]

    def take(self, chat: RenderedChat) -> RenderedChat:
        """The chat without marks, and where the marked texts begin."""
        parts = chat.text.split(self._mark)
        if len(parts) == 1:
            return chat
        ends = list(itertools.accumulate(len(part) for part in parts))
        marked_at = np.array(ends[:-1]) + np.arange(len(parts) - 1) * len(self._mark)

        def moved(place: int) -> int:
            return place - len(self._mark) * int(np.searchsorted(marked_at, place))

        spans = tuple((moved(start), moved(stop)) for start, stop in chat.spans)
        return RenderedChat(text="".join(parts), spans=spans, literals=tuple(end - 1 for end in ends[:-1]))

    def _is_found(self, value: object) -> bool:
        if isinstance(value, str):
            return self._special is not None and self._special.search(value) is not None
        if isinstance(value, Mapping):
            return any(self._is_found(item) for pair in value.items() for item in pair)
        return isinstance(value, Sequence) and not isinstance(value, bytes) and any(map(self._is_found, value))

    def _marked(self, value: Any) -> Any:
        if isinstance(value, str):
            assert self._special is not None, "only what was found is marked"
            return self._special.sub(lambda found: found[0][0] + self._mark + found[0][1:], value)
        if isinstance(value, Mapping):
            return {self._marked(key): self._marked(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self._marked(item) for item in value]
        return value


def encode_chats(
    chats: Sequence[RenderedChat], tokenizer: TokenizerFile, plain: TokenizerFile | None
) -> Iterator[tuple[Int32Array, Int32Array]]:
    """Ids of each chat, int32 (n,), and [start, stop) of each token in characters of its text, int32 (n, 2).

    Args:
        tokenizer: Reads special tokens' text as the tokens.
        plain: Reads them as text; None where content may hold special tokens.
    """
    encoded = tokenizer.encode_with_offsets([chat.text for chat in chats])
    for chat, (ids_n, offsets_n2) in zip(chats, encoded, strict=True):
        if chat.literals and plain is not None:
            yield _with_plain_parts(chat, tokenizer, plain, ids_n, offsets_n2)
        else:
            yield ids_n, offsets_n2


def _with_plain_parts(
    chat: RenderedChat, tokenizer: TokenizerFile, plain: TokenizerFile, ids_n: Int32Array, offsets_n2: Int32Array
) -> tuple[Int32Array, Int32Array]:
    """Encode the text between two of the template's special tokens anew where content holds special text in it."""
    literals = np.array(chat.literals)
    is_special_n = np.isin(ids_n, list(tokenizer.special_tokens.values()))
    # The text of a special token may have blanks before it that belong to the token.
    first_n, after_n = (np.searchsorted(literals, offsets_n2[:, side]) for side in (0, 1))
    borders = np.flatnonzero(is_special_n & (first_n == after_n)).tolist()
    parts: list[tuple[Int32Array, Int32Array]] = []
    for before, border in itertools.pairwise([-1, *borders, len(ids_n)]):
        start = int(offsets_n2[before, 1]) if before >= 0 else 0
        stop = int(offsets_n2[border, 0]) if border < len(ids_n) else len(chat.text)
        if ((literals >= start) & (literals < stop)).any():
            ((part_n, inside_n2),) = plain.encode_with_offsets([chat.text[start:stop]])
            parts.append((part_n, inside_n2 + np.int32(start)))
        else:
            parts.append((ids_n[before + 1 : border], offsets_n2[before + 1 : border]))
        parts.append((ids_n[border : border + 1], offsets_n2[border : border + 1]))
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([offsets for _, offsets in parts])
