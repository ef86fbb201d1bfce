"""A Hugging Face `tokenizers` file, opened once in a process and shared by all sources that name it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..wire.errors import SpecError
from .sample import Int32Array

# n = tokens of one text

CHUNK_CHARS = 2 << 20
"""Texts are encoded in groups of about this size: an encoding holds some 60 bytes a token until it is read out."""

COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json")
WELL_KNOWN = {
    "bos": ("<s>", "<|begin_of_text|>", "<bos>", "[BOS]", "<|startoftext|>", "<|begin▁of▁sentence|>", "[CLS]"),
    "eos": ("</s>", "<|end_of_text|>", "<eos>", "[EOS]", "<|endoftext|>", "<|end▁of▁sentence|>", "[SEP]"),
}
"""Texts of begin and end tokens that are looked for where no companion file of the tokenizer names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFile:
    """An opened tokenizer. Any thread may encode: the library releases the GIL and does not lock.

    Attributes:
        digest: SHA-256 (hex) of the file's bytes.
        vocab_size: One more than the highest token id.
        special_tokens: Text -> id of the tokens that the file calls special.
        own_tokens: "bos" and "eos" -> the text of that token, where it is known.
    """

    path: Path
    digest: str
    vocab_size: int
    special_tokens: dict[str, int]
    own_tokens: dict[str, str]
    _tokenizer: Any

    def encode(self, texts: Sequence[str]) -> Iterator[Int32Array]:
        """Token ids of each text, int32 (n,), in order; no special tokens are added and nothing is truncated."""
        for group in _groups(texts):
            for encoding in self._tokenizer.encode_batch_fast(group, add_special_tokens=False):
                yield np.array(encoding.ids, np.int32)

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[Int32Array, Int32Array]]:
        """As `encode`, with [start, stop) of each token in characters of its text: int32 (n,) and (n, 2)."""
        for group in _groups(texts):
            for encoding in self._tokenizer.encode_batch(group, add_special_tokens=False):
                offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
                yield np.array(encoding.ids, np.int32), offsets

    def token_id(self, text: str) -> int | None:
        """The id of the token with exactly this text."""
        found: int | None = self._tokenizer.token_to_id(text)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the token ids, special tokens included."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    num_chars = 0
    for text in texts:
        group.append(text)
        num_chars += len(text)
        if num_chars >= CHUNK_CHARS:
            yield group
            group, num_chars = [], 0
    if group:
        yield group


def open_tokenizer(path: str, *, field: str, specials_as_text: bool = False) -> TokenizerFile:
    """Open a tokenizers file; the same file is opened once in a process and way of reading special tokens.

    Args:
        specials_as_text: Encode the text of a special token as any other text.
        field: The spec's field that names the file, for the error.

    Raises:
        SpecError: No such file, or it is not a tokenizers file.
    """
    try:
        stat = Path(path).stat()
        return _open(path, stat.st_mtime_ns, stat.st_size, specials_as_text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(f"{field}: must be a readable tokenizer.json, got {path!r}: {reason}", field=field) from error
    except ValueError as error:
        raise SpecError(f"{field}: not a Hugging Face tokenizers file, {path!r}: {error}", field=field) from error


@functools.lru_cache(maxsize=64)
def _open(path: str, mtime_ns: int, size_bytes: int, specials_as_text: bool) -> TokenizerFile:
    _encode_on_calling_threads()
    data = Path(path).read_bytes()
    tokenizer = Tokenizer.from_buffer(data)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = specials_as_text
    return TokenizerFile(
        path=Path(path),
        digest=hashlib.sha256(data).hexdigest(),
        vocab_size=max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1,
        special_tokens={t.content: i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special},
        own_tokens=_own_tokens(Path(path), tokenizer),
        _tokenizer=tokenizer,
    )


def _encode_on_calling_threads() -> None:
    """Let each encode_batch run on the thread that calls it, unless the environment says otherwise.

    The loader calls from one thread a core. Measured on two shared cores, medians (range) of 4 runs in MB/s: two
    threads so 7.4 (7.0-8.1), two with the library's own pool beneath them 6.9 (6.6-8.3), one with that pool 6.6
    (6.2-7.0). The first two are within noise of each other; what decides is that no second pool competes with the
    loader's threads, and none is lost in a fork.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _own_tokens(path: Path, tokenizer: Any) -> dict[str, str]:
    named = _companion_tokens(path)
    candidates = {kind: (named[kind],) if kind in named else known for kind, known in WELL_KNOWN.items()}
    found = {kind: [t for t in texts if tokenizer.token_to_id(t) is not None] for kind, texts in candidates.items()}
    return {kind: texts[0] for kind, texts in found.items() if texts}


def _companion_tokens(path: Path) -> dict[str, str]:
    """What the files beside tokenizer.json say about its begin and end tokens."""
    named: dict[str, str] = {}
    for name in COMPANIONS:
        companion = path.with_name(name)
        if not companion.is_file():
            continue
        tree = json.loads(companion.read_bytes())
        for kind in WELL_KNOWN:
            token = tree.get(f"{kind}_token") if isinstance(tree, dict) else None
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                named.setdefault(kind, text)
    return named
