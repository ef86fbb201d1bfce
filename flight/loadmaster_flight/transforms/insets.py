"""Tokens of media among the tokens of a text.

# n = tokens of one text, k = spans of one text, I = insets
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..wire.schemas import Verdict
from .document import DocumentRule
from .sample import Int32Array, Outcome, skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Inset:
    """Tokens of a media item in a text.

    Attributes:
        place: Index of the token of the text that they stand before.
        ids: Int32 ids.
        lead: How many of them come before the first placeholder.
    """

    place: int
    ids: Int32Array
    lead: int


def finish_with_insets(
    rule: DocumentRule, ids_n: Int32Array, spans_k2: Int32Array | None, insets: Sequence[Inset]
) -> tuple[Outcome, list[int]]:
    """As `DocumentRule.finish`, with the tokens of media among those of the text. Such a document is never cut.

    The tokens of media are never targets; a document of media alone may have no target at all.

    Args:
        rule: What is put around the document, and how long it may be.
        ids_n: Shape (n,), int32, of the text.
        spans_k2: Shape (k, 2), int32, [start, stop) of tokens of the text that count; None: all of the document's.
        insets: By place, ascending.

    Returns:
        The document, and the place of each item's first placeholder in it.
    """
    head, tail = _around_text(rule, ids_n, insets)
    text_n = np.concatenate([np.array(head, np.int32), ids_n, np.array(tail, np.int32)])
    whole_12 = np.array([[0, len(text_n)]], np.int32)
    targets_k2 = whole_12 if spans_k2 is None else spans_k2 + np.int32(len(head))
    places = [inset.place + len(head) for inset in insets]
    sizes_I1 = np.cumsum([0, *(len(inset.ids) for inset in insets)])
    document_n = _inserted(text_n, places, insets)
    reason = _left_out(rule, len(document_n))
    if reason is not None:
        return skipped(reason), []
    starts = [place + int(sizes_I1[i]) + insets[i].lead for i, place in enumerate(places)]
    spans = _without_insets(targets_k2, places, sizes_I1)
    return Outcome(verdict=Verdict.OK, ids_n=document_n, spans=spans), starts


def _around_text(rule: DocumentRule, ids_n: Int32Array, insets: Sequence[Inset]) -> tuple[list[int], list[int]]:
    """The special tokens that the document lacks at its ends."""
    has_bos = len(ids_n) and ids_n[0] == rule.bos and all(inset.place > 0 for inset in insets)
    has_eos = len(ids_n) and ids_n[-1] == rule.eos and all(inset.place < len(ids_n) for inset in insets)
    head = [] if rule.bos is None or has_bos else [rule.bos]
    tail = [] if rule.eos is None or has_eos else [rule.eos]
    return head, tail


def _left_out(rule: DocumentRule, num_tokens: int) -> str | None:
    if not num_tokens:
        return "empty document"
    if rule.max_tokens is not None and num_tokens > rule.max_tokens:
        return f"{num_tokens} tokens, longer than max_tokens {rule.max_tokens}, and media cannot be cut"
    return f"shorter than min_tokens {rule.min_tokens}" if num_tokens < rule.min_tokens else None


def _inserted(text_n: Int32Array, places: Sequence[int], insets: Sequence[Inset]) -> Int32Array:
    edges = [0, *places, len(text_n)]
    parts = [text_n[start:stop] for start, stop in itertools.pairwise(edges)]
    pairs = itertools.zip_longest(parts, (inset.ids for inset in insets))
    return np.concatenate([part for pair in pairs for part in pair if part is not None])


def _without_insets(targets_k2: Int32Array, places: Sequence[int], sizes_I1: npt.NDArray[np.int64]) -> Int32Array:
    """Spans of the text's tokens where these stand in the document, flat: cut at insets, which they leave out."""
    edges = sorted(set(places))
    cut = [
        pair
        for start, stop in targets_k2.tolist()
        for pair in itertools.pairwise([start, *(edge for edge in edges if start < edge < stop), stop])
        if pair[0] < pair[1]
    ]
    spans_k2 = np.array(cut, np.int64).reshape(-1, 2)
    # What is put at a token's place stands before that token, and behind the one before it.
    shift_k = sizes_I1[np.searchsorted(places, spans_k2[:, 0], side="right")]
    moved: Int32Array = (spans_k2 + shift_k[:, np.newaxis]).astype(np.int32).reshape(-1)
    return moved
