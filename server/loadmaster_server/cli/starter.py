"""The commented starter spec that `loadmaster init` writes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from .scan import FoundSource
from .stock import readable_bytes

SEQ_LEN, MICROBATCHES = 2048, 8

HEAD = """\
# A run: what is read, in which mixture, and what a training step looks like.
# `loadmaster check {file}` opens every source and prints what is there;
# `loadmaster peek {file}` shows samples as the run will transform them.

run: {run}
seed: 0
"""

NO_TOKENIZER = """
# No tokenizer.json was found. Put the path of yours here; relative paths start at the folder of this file.
# tokenizer: path/to/tokenizer.json
"""

MEDIA = {
    "vision": """\
  vision:                   # Qwen2-VL's convention: patches of 14 x 14 pixels, 2 x 2 of them a token
    image_token: "<|image_pad|>"{note}
    video_token: "<|video_pad|>"
""",
    "audio": """\
  audio:                    # 16,000 samples a second, one channel, a token for every 320
    audio_token: "<|audio_pad|>"{note}
""",
}
UNKNOWN_TOKEN = "   # not a token of the tokenizer: name one that is, or give an id"
SECTION_OF = {"image": "vision", "video": "vision", "audio": "audio"}
TOKENS_OF = {"image": "<|image_pad|>", "video": "<|video_pad|>", "audio": "<|audio_pad|>"}

TAIL = """
batch:
  seq_len: {seq_len}             # tokens of a microbatch
  microbatches: {microbatches}           # of one optimizer step, all ranks together
  layout: pack              # whole documents, best fit; or concat, or pad

until:
  epochs: 1                 # or steps, or tokens; without any the run never ends by itself
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterSpec:
    """What goes into a starter spec.

    Attributes:
        prefix: From the spec's folder to the scanned one, "" or ending in "/".
        tokenizer: As written in the spec; None: not found.
        has_eos: Whether the tokenizer knows an end token of its own.
        known_tokens: Placeholders of media that the tokenizer has.
    """

    file: str
    run: str
    prefix: str
    tokenizer: str | None
    has_eos: bool
    sources: Sequence[FoundSource]
    known_tokens: Collection[str] = ()

    @property
    def usable(self) -> list[FoundSource]:
        """The sources that have content."""
        return [source for source in self.sources if source.is_usable]

    @property
    def unknown_tokens(self) -> list[str]:
        """Placeholders that the sources need and the tokenizer does not have."""
        return [TOKENS_OF[kind] for kind in self._kinds if TOKENS_OF[kind] not in self.known_tokens]

    @property
    def _kinds(self) -> list[str]:
        return [kind for kind in TOKENS_OF if any(kind in source.media for source in self.usable)]

    def to_yaml(self) -> str:
        """The file's text."""
        tokenizer = NO_TOKENIZER if self.tokenizer is None else f"\ntokenizer: {_quoted(self.tokenizer)}\n"
        sources = "\n".join(self._source(source) for source in self.sources)
        tail = TAIL.format(seq_len=SEQ_LEN, microbatches=MICROBATCHES)
        head = HEAD.format(file=self.file, run=self.run) + tokenizer + self._media()
        return f"{head}\nsources:\n{sources}" + self._mixture() + tail

    def _media(self) -> str:
        sections = {SECTION_OF[kind]: "" for kind in self._kinds}
        for kind in self._kinds:
            if TOKENS_OF[kind] in self.unknown_tokens:
                sections[SECTION_OF[kind]] = UNKNOWN_TOKEN
        text = "".join(MEDIA[section].format(note=note) for section, note in sections.items())
        return f"\nmedia:\n{text}" if text else ""

    def _source(self, source: FoundSource) -> str:
        about = f"{source.num_files} file{'s' if source.num_files != 1 else ''}, {readable_bytes(source.size_bytes)}"
        uris = [_quoted(self.prefix + uri) for uri in source.uris]
        if not source.is_usable:
            return f"  # {source.name}: left out ({about}): {source.fault}\n"
        listed = uris[0] if len(uris) == 1 else f"[{', '.join(uris)}]"
        return (
            f"  {source.name}:  # {about}\n    uri: {listed}\n    format: {source.format.value}\n    transform:\n"
        ) + "".join([*_content(source), self._eos(source)])

    def _eos(self, source: FoundSource) -> str:
        if source.column is not None and source.column.kind == "messages":
            return "      eos: false  # each turn ends with <|im_end|> already, as ChatML has it; see chat_template\n"
        if (source.column is not None and source.column.kind == "tokens") or self.has_eos or self.tokenizer is None:
            return ""
        return "      eos: false  # the tokenizer names no end token; give the text of one to end documents with it\n"

    def _mixture(self) -> str:
        total = sum(source.size_bytes for source in self.usable) or 1
        lines = [f"    {s.name}: {max(0.0001, s.size_bytes / total):.4f}\n" for s in self.usable]
        return (
            "\nmixture:\n  unit: tokens\n  weights:  # shares of the tokens, here by bytes; they need not sum to 1\n"
        ) + "".join(lines)


def _content(source: FoundSource) -> Iterator[str]:
    """Lines of the transform that name its columns."""
    if source.column is not None:
        yield f"      {source.column.kind}: {_quoted(source.column.path)}\n"
    for kind, columns in source.media.items():
        listed = [_quoted(column) for column in columns]
        yield f"      {kind}: {listed[0] if len(listed) == 1 else '[' + ', '.join(listed) + ']'}\n"


def _quoted(text: str) -> str:
    """A YAML scalar: JSON strings are YAML, and globs need quoting."""
    return json.dumps(text, ensure_ascii=False)
