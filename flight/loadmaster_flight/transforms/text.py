"""Text columns."""

from __future__ import annotations

from ..sources.blocks import RowFault
from .sample import Outcome, bad, skipped


def text_of(value: object) -> str | Outcome:
    """The text of a row that can be encoded, or why there is none.

    Bytes are taken for UTF-8. A lone surrogate (JSON can spell one) has no UTF-8 form, so no tokenizer takes it.
    """
    if value is None:
        return skipped("null text")
    if isinstance(value, RowFault):
        return bad(value.reason)
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            return bad(f"text is not UTF-8 at byte {error.start}")
    if not isinstance(value, str):
        return bad(f"text must be a string, got {type(value).__name__}")
    if not value or value.isspace():
        return skipped("empty text")
    return value if value.isascii() else _without_surrogates(value)


def _without_surrogates(text: str) -> str | Outcome:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return bad(f"text has a lone surrogate at character {error.start}")
    return text
