"""From the ids of a row's content to a document: special tokens, truncation, and what is too short.

These are decided here and nowhere else: nothing after a transform adds or takes away a token.

# n = tokens of one document, k = spans of one document
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..wire.schemas import Verdict
from .sample import Int32Array, Outcome, skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRule:
    """What is put around the content of a source's rows, and how long a document may be.

    Attributes:
        bos: Id of the token in front; None for none.
        eos: Id of the token at the end; None for none.
        max_tokens: Longer documents are cut to this many tokens, special tokens included; None: never.
        min_tokens: Shorter documents are left out; special tokens count.
    """

    bos: int | None
    eos: int | None
    max_tokens: int | None
    min_tokens: int

    def finish(self, ids_n: Int32Array, spans_k2: Int32Array | None, *, noun: str) -> Outcome:
        """Make a document of content ids.

        A special token that the content has in its place already (chat templates put it there) is not put twice.

        Args:
            ids_n: Shape (n,), int32.
            spans_k2: Shape (k, 2), int32, [start, stop) of content tokens that count as targets; None: all of them.
            noun: What the content is, for the reason of an empty one.
        """
        if not len(ids_n):
            return skipped(f"empty {noun}")
        head = [] if self.bos is None or ids_n[0] == self.bos else [self.bos]
        tail = [] if self.eos is None or ids_n[-1] == self.eos else [self.eos]
        if self.max_tokens is not None and len(head) + len(ids_n) + len(tail) > self.max_tokens:
            tail = [] if self.eos is None else [self.eos]
            ids_n = ids_n[: self.max_tokens - len(head) - len(tail)]
        document_n = np.concatenate([np.array(head, np.int32), ids_n, np.array(tail, np.int32)])
        if len(document_n) < self.min_tokens:
            return skipped(f"shorter than min_tokens {self.min_tokens}")
        spans = None if spans_k2 is None else _clip(spans_k2, shift=len(head), stop=len(head) + len(ids_n))
        if spans is not None and not len(spans):
            return skipped(f"no target within max_tokens {self.max_tokens}")
        return Outcome(verdict=Verdict.OK, ids_n=document_n, spans=spans)


def _clip(spans_k2: Int32Array, *, shift: int, stop: int) -> Int32Array:
    """The spans after `shift` tokens in front and a cut at `stop`, flat; empty ones are dropped."""
    moved_k2 = np.minimum(spans_k2 + np.int32(shift), np.int32(stop))
    kept: Int32Array = moved_k2[moved_k2[:, 0] < moved_k2[:, 1]].reshape(-1)
    return kept
