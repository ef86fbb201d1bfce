"""How the content of a source's rows is found: in a column, or by a user's function.

# N = rows
"""

from __future__ import annotations

import numpy as np

from ..sources.blocks import Block, Int64Array, RowFault
from .chat import chat_of
from .chat_media import MixedChatReader
from .chat_template import ChatTemplate
from .function import RowFunction, judged
from .media import MediaColumns
from .placeholders import Mixed, Slot, Values, fill_slots, split_text
from .sample import Outcome, bad, skipped
from .text import text_of
from .token_ids import token_ids_of
from .transform import Content, Reader


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


def mixed_text_reader(path: str, columns: MediaColumns) -> Reader:
    """Content is the text at a dotted path with the media of some columns in it."""

    def read_row(value: object, values: Values | Outcome) -> Content:
        text = text_of(value)
        if isinstance(text, Outcome):
            return text
        if isinstance(values, Outcome):
            return values
        filled = fill_slots([split_text(text, values)], values)
        if isinstance(filled, Outcome):
            return filled
        mixed = Mixed.of_parts(filled[0])
        return mixed if mixed.items else text

    def read(block: Block, rows_N: Int64Array) -> list[Content]:
        media_N = columns.read(block, rows_N)
        return [read_row(*row) for row in zip(block.column(path, rows_N), media_N, strict=True)]

    return read


def mixed_chat_reader(path: str, template: ChatTemplate, columns: MediaColumns) -> Reader:
    """Content is the list of messages at a dotted path with media in it, of some columns or its own."""
    chats = MixedChatReader(template, columns.paths)

    def read_row(value: object, values: Values | Outcome) -> Content:
        return values if isinstance(values, Outcome) else chats.read(value, values)

    def read(block: Block, rows_N: Int64Array) -> list[Content]:
        media_N = columns.read(block, rows_N)
        return [read_row(*row) for row in zip(block.column(path, rows_N), media_N, strict=True)]

    return read


def media_reader(columns: MediaColumns) -> Reader:
    """Content is the media of some columns, without a text."""

    def read_row(values: Values | Outcome) -> Content:
        if isinstance(values, Outcome):
            return values
        items = [Slot(kind, value) for kind in values for value in values[kind]]
        return Mixed.of_parts(items) if items else skipped("no media")

    def read(block: Block, rows_N: Int64Array) -> list[Content]:
        return [read_row(values) for values in columns.read(block, rows_N)]

    return read
