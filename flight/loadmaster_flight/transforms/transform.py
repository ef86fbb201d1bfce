"""What turns the rows of a source into documents of token ids.

# N = rows asked for, n = tokens of one document, k = spans of one document
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..sources.blocks import Block, Int64Array, RowFault
from ..wire.errors import UnavailableError
from .chat import chat_of, token_spans
from .chat_template import ChatTemplate
from .document import DocumentRule
from .function import RowFunction, describe, judged
from .rendered import RenderedChat
from .sample import Int32Array, Measured, Outcome, bad, skipped
from .special_text import encode_chats
from .text import text_of
from .token_ids import token_ids_of
from .tokenizer import TokenizerFile

Content = str | RenderedChat | Int32Array | Outcome
"""A row's content before encoding: text, a chat, or ids; an Outcome where the verdict is known already."""

Reader = Callable[[Block, Int64Array], list[Content]]
"""Reads the content of N rows of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """One source's transform. Any thread may call it, several at once.

    Attributes:
        fingerprint: SHA-256 (hex) of everything that decides the tokens of a row.
        vocab_size: Every token id is below this.
        tokenizer: Encodes texts and rendered chats.
        plain: Encodes what a chat's content has of special tokens' text; None where that may be special tokens.
        read: What a row's content is.
        rule: What is put around ids of text and chats.
        ids_rule: What is put around ids that came as ids.
    """

    source: str
    fingerprint: str
    vocab_size: int
    tokenizer: TokenizerFile | None
    plain: TokenizerFile | None
    read: Reader
    rule: DocumentRule
    ids_rule: DocumentRule

    def measure(self, block: Block, rows_N: Int64Array) -> Measured:
        """Documents of some rows, in the order asked for; what is not OK has a verdict and its reason.

        Args:
            block: Read by the calling thread, not kept.
            rows_N: Shape (N,), int64 row numbers inside the block.

        Raises:
            UnavailableError: Memory, or a user function's own input or output, failed; that says nothing about a row,
                and the call may be repeated. Names the source.
        """
        try:
            return Measured.gather(self._encode(self.read(block, rows_N)))
        except (OSError, MemoryError) as error:
            raise UnavailableError(f"source {self.source}: its transform failed: {describe(error)}") from error

    def decode(self, tokens: Sequence[int] | Int32Array) -> str | None:
        """Text of token ids, special tokens included; None without a tokenizer."""
        return None if self.tokenizer is None else self.tokenizer.decode([int(token) for token in tokens])

    def _encode(self, contents: list[Content]) -> list[Outcome]:
        """Encode texts in one go and chats in another, and finish each row in its own place."""
        outcomes = [self._finish_plain(content) for content in contents]
        texts = {i: content for i, content in enumerate(contents) if isinstance(content, str)}
        chats = {i: content for i, content in enumerate(contents) if isinstance(content, RenderedChat)}
        if texts:
            for i, ids_n in zip(texts, self._opened.encode(list(texts.values())), strict=True):
                outcomes[i] = self.rule.finish(ids_n, None, noun="text")
        if chats:
            encoded = encode_chats(list(chats.values()), self._opened, self.plain)
            for (i, chat), (ids_n, offsets_n2) in zip(chats.items(), encoded, strict=True):
                outcomes[i] = self.rule.finish(ids_n, token_spans(chat.spans, offsets_n2), noun="messages")
        return outcomes

    def _finish_plain(self, content: Content) -> Outcome:
        """Finish what needs no tokenizer; text and chats get a placeholder that `_encode` replaces."""
        if isinstance(content, Outcome):
            return content
        return self.ids_rule.finish(content, None, noun="tokens") if isinstance(content, np.ndarray) else _PENDING

    @property
    def _opened(self) -> TokenizerFile:
        assert self.tokenizer is not None, "build_transform gives every transform that yields text a tokenizer"
        return self.tokenizer


_PENDING = bad("not encoded")


def text_reader(path: str) -> Reader:
    """Content is the text at a dotted path."""

    def read(block: Block, rows_N: Int64Array) -> list[Content]:
        return [text_of(value) for value in block.column(path, rows_N)]

    return read


def chat_reader(path: str, template: ChatTemplate) -> Reader:
    """Content is the list of messages at a dotted path, rendered."""

    def read(block: Block, rows_N: Int64Array) -> list[Content]:
        return [chat_of(value, template) for value in block.column(path, rows_N)]

    return read


def ids_reader(path: str, vocab_size: int) -> Reader:
    """Content is the list of token ids at a dotted path."""

    def read(block: Block, rows_N: Int64Array) -> list[Content]:
        return [token_ids_of(value, vocab_size=vocab_size) for value in block.column(path, rows_N)]

    return read


def function_reader(function: RowFunction, vocab_size: int, *, has_tokenizer: bool) -> Reader:
    """Content is what a user's function makes of the whole row: text, ids, or None to leave the row out."""

    def read_row(row: dict[str, object] | RowFault) -> Content:
        if isinstance(row, RowFault):
            return bad(row.reason)
        value = judged(lambda: function(row))
        if isinstance(value, Outcome):
            return value
        if value is None:
            return skipped("left out by the function")
        if isinstance(value, str):
            return text_of(value) if has_tokenizer else bad("function returned text, and the source has no tokenizer")
        if isinstance(value, (list, tuple, np.ndarray)):
            return token_ids_of(value, vocab_size=vocab_size)
        return bad(f"function must return str, list of int or None, got {type(value).__name__}")

    def read(block: Block, rows_N: Int64Array) -> list[Content]:
        return [read_row(block.row(int(index))) for index in rows_N]

    return read
