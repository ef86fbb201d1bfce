"""What turns the rows of a source into documents of token ids.

# N = rows asked for, n = tokens of one document, k = spans of one document
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..sources.blocks import Block, Int64Array
from ..wire.errors import UnavailableError
from ..wire.schemas import MediaKind, Verdict
from .chat import token_spans
from .chat_media import MixedChat
from .document import DocumentRule
from .function import describe
from .insets import finish_with_insets
from .media import NO_ACCESS, MediaAccess, MediaRule
from .placeholders import Mixed
from .rendered import RenderedChat
from .sample import Int32Array, Measured, MediaBuffers, Outcome, SampleMedia, bad
from .special_text import encode_chats
from .tokenizer import TokenizerFile

if TYPE_CHECKING:
    from .thumbnail import Picture

Content = str | RenderedChat | Mixed | MixedChat | Int32Array | Outcome
"""A row's content before encoding: text, a chat, either of them with media in it, or ids; an Outcome where the verdict
is known already."""

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
        media: What is made of images, video and audio; None where the source has none.
    """

    source: str
    fingerprint: str
    vocab_size: int
    tokenizer: TokenizerFile | None
    plain: TokenizerFile | None
    read: Reader
    rule: DocumentRule
    ids_rule: DocumentRule
    media: MediaRule | None = None

    def measure(self, block: Block, rows_N: Int64Array, access: MediaAccess = NO_ACCESS) -> Measured:
        """Documents of some rows, in the order asked for; what is not OK has a verdict and its reason.

        Args:
            block: Read by the calling thread, not kept.
            rows_N: Shape (N,), int64 row numbers inside the block.
            access: How the bytes of media are reached; by default only those that rows hold themselves.

        Raises:
            UnavailableError: Memory, storage, or a user function's own input or output, failed; that says nothing about
                a row, and the call may be repeated. Names the source.
        """
        try:
            contents = self.read(block, rows_N)
            outcomes = self._encode(contents)
            for i, content in enumerate(contents):
                if isinstance(content, (Mixed, MixedChat)):
                    outcomes[i] = self._measure_media(content, int(rows_N[i]), access)
            return Measured.gather(outcomes)
        except (OSError, MemoryError) as error:
            raise UnavailableError(f"source {self.source}: its transform failed: {describe(error)}") from error

    def fill(
        self,
        block: Block,
        row: int,
        media: SampleMedia,
        out: MediaBuffers,
        access: MediaAccess = NO_ACCESS,
    ) -> str | None:
        """Decode a row's media that were measured before.

        Args:
            block: Holds the row.
            row: Its number inside the block.
            media: As measured.
            out: What is wanted of them, and where it is written.
            access: As for `measure`.

        Returns:
            None, or why the content cannot be decoded: then both buffers are filled with zeros.

        Raises:
            UnavailableError: As `measure`.
        """
        assert self.media is not None, "a row has media where the source has"
        try:
            reason = self._fill(self.media, block, row, media, out, access)
        except (OSError, MemoryError) as error:
            raise UnavailableError(f"source {self.source}: its media failed: {describe(error)}") from error
        if reason is not None:
            out.pixels[:] = 0
            out.audio[:] = 0
        return reason

    def thumbnails(self, block: Block, row: int, access: MediaAccess, limit: int) -> tuple[int, list[Picture]]:
        """How many images a row has, and small JPEG files of the first ones.

        Raises:
            UnavailableError: As `measure`.
        """
        if self.media is None:
            return 0, []
        try:
            (content,) = self.read(block, np.array([row], np.int64))
            slots = content.items if isinstance(content, (Mixed, MixedChat)) else ()
            num_images = sum(slot.kind is MediaKind.IMAGE for slot in slots)
            return num_images, self.media.thumbnails(slots, row, access, limit)
        except (OSError, MemoryError) as error:
            raise UnavailableError(f"source {self.source}: its media failed: {describe(error)}") from error

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

    def _measure_media(self, content: Mixed | MixedChat, row: int, access: MediaAccess) -> Outcome:
        """Headers first: a text is encoded once its media are known to be good."""
        assert self.media is not None, "a reader finds media where the source has any"
        grids = self.media.measure(content.items, row, access)
        if isinstance(grids, Outcome):
            return grids
        parts, spans_k2 = self._encode_mixed(content)
        ids_n = np.concatenate([_NO_IDS, *parts])
        if self.media.has_placeholder(ids_n):
            return bad("text holds the token of a placeholder")
        places = np.cumsum([len(part) for part in parts])[:-1].tolist()
        insets = self.media.insets(content.items, grids, places)
        outcome, starts = finish_with_insets(self.rule, ids_n, spans_k2, insets)
        if outcome.verdict != Verdict.OK:
            return outcome
        return replace(outcome, media=self.media.sample(content.items, grids, starts))

    def _encode_mixed(self, content: Mixed | MixedChat) -> tuple[list[Int32Array], Int32Array | None]:
        """Ids of each segment, and the spans of all of them together that count."""
        if isinstance(content, Mixed):
            if not any(content.segments):
                return [_NO_IDS] * len(content.segments), None
            return list(self._opened.encode(content.segments)), None
        encoded = list(encode_chats(content.segments(), self._opened, self.plain))
        edges = [0, *content.places]
        offsets_n2 = np.concatenate(
            [inside_n2 + np.int32(at) for (_, inside_n2), at in zip(encoded, edges, strict=True)]
        )
        return [ids_n for ids_n, _ in encoded], token_spans(content.chat.spans, offsets_n2)

    def _fill(
        self,
        rule: MediaRule,
        block: Block,
        row: int,
        media: SampleMedia,
        out: MediaBuffers,
        access: MediaAccess,
    ) -> str | None:
        (content,) = self.read(block, np.array([row], np.int64))
        slots = content.items if isinstance(content, (Mixed, MixedChat)) else ()
        if [slot.kind for slot in slots] != [item.kind for item in media.items]:
            return "other media than when it was measured"
        failure = rule.fill(slots, media, out, row, access)
        return None if failure is None else failure.reason

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
_NO_IDS = np.zeros(0, np.int32)
