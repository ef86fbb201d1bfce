"""Ids of the tokens that stand for media: of the tokenizer by their text, or as the spec gives them."""

from __future__ import annotations

from collections.abc import Collection

from ..spec.media import MediaSpec, TokenName
from ..wire.errors import SpecError
from ..wire.schemas import MediaKind
from .media import MediaTokens
from .tokenizer import TokenizerFile

_FIELDS = {
    MediaKind.IMAGE: ("vision", "image_token"),
    MediaKind.VIDEO: ("vision", "video_token"),
    MediaKind.AUDIO: ("audio", "audio_token"),
}


def media_tokens(
    spec: MediaSpec,
    tokenizer: TokenizerFile | None,
    vocab_size: int,
    *,
    needed: Collection[MediaKind],
    may_have_others: bool,
) -> dict[MediaKind, MediaTokens]:
    """The tokens of each kind that the source's rows can have.

    Args:
        spec: What the run makes of media.
        tokenizer: Of the source; None where tokens must be given as ids.
        vocab_size: Ids must be below it.
        needed: Kinds that the source has columns of.
        may_have_others: Rows may hold other kinds as well, as chats do; these are left out where their tokens are not
            to be had.

    Raises:
        SpecError: A token of a needed kind is unknown; names field, rule and value.
    """
    finder = _Finder(tokenizer, vocab_size)
    found: dict[MediaKind, MediaTokens] = {}
    for kind, (section, name) in _FIELDS.items():
        own = getattr(spec, section)
        if own is None or (kind not in needed and not may_have_others):
            continue
        try:
            found[kind] = MediaTokens(
                placeholder=finder.token_id(getattr(own, name), f"media.{section}.{name}"),
                start=finder.optional_id(own.start_token, f"media.{section}.start_token"),
                end=finder.optional_id(own.end_token, f"media.{section}.end_token"),
            )
        except SpecError:
            if kind in needed:
                raise
    return found


class _Finder:
    def __init__(self, tokenizer: TokenizerFile | None, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size

    def optional_id(self, name: TokenName | None, field: str) -> int | None:
        return None if name is None else self.token_id(name, field)

    def token_id(self, name: TokenName, field: str) -> int:
        if isinstance(name, int):
            if name >= self._vocab_size:
                raise SpecError(f"{field}: must be an id in [0, {self._vocab_size}), got {name}", field=field)
            return name
        if self._tokenizer is None:
            raise SpecError(f"{field}: must be an id where a source has no tokenizer, got {name!r}", field=field)
        found = self._tokenizer.token_id(name)
        if found is None:
            rule = f"must be a token of {self._tokenizer.path}, or an id"
            raise SpecError(f"{field}: {rule}, got {name!r}", field=field)
        return found
