"""One source of a run: where its bytes are, how they are read, and how a row becomes a sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from .model import SpecModel, refuse


class SourceFormat(StrEnum):
    AUTO = "auto"
    PARQUET = "parquet"
    JSONL = "jsonl"
    ARROW = "arrow"
    WEBDATASET = "webdataset"
    FOLDER = "folder"
    MDS = "mds"
    ENERGON = "energon"


FIRST_DOT, LAST_DOT = "first_dot", "last_dot"


class OnExhausted(StrEnum):
    """What happens when a source has nothing left: the others share its weight, the stream ends, or it fails."""

    RENORMALIZE = "renormalize"
    STOP = "stop"
    ERROR = "error"


class SpecialsInText(StrEnum):
    """What the text of a special token is inside content: text like any other, or the token."""

    TEXT = "text"
    TOKEN = "token"


def _columns(value: object) -> object:
    """One dotted path or a list of them."""
    return (value,) if isinstance(value, str) else value


Columns = Annotated[tuple[str, ...], BeforeValidator(_columns)]


class TransformSpec(SpecModel):
    """How a row becomes token ids. Exactly one of text, messages, tokens or function says where they come from.

    Media (image, video, audio) stand where the text has `<image>`, `<video>`, `<audio>`, in the order of their columns;
    those without such a place come before the text. Without text a sample is its media alone.
    """

    text: str | None = None
    """Dotted path of a text column, for example `text` or `doc.body`."""
    messages: str | None = None
    """Dotted path of a chat: a list of {role, content}. Loss falls on the assistant's turns alone."""
    tokens: str | None = None
    """Dotted path of a column of token ids, passed through."""
    function: str | None = None
    """Dotted name `package.module:callable`: row (dict) -> str, list of int, or None to leave the row out."""
    image: Columns = ()
    """Dotted paths of images: bytes, {bytes, path}, a path relative to the shard's folder, or a list of these."""
    video: Columns = ()
    """Dotted paths of videos, as `image`."""
    audio: Columns = ()
    """Dotted paths of audio, as `image`."""
    tokenizer: str | None = None
    """A Hugging Face tokenizers file (tokenizer.json); the run's by default."""
    chat_template: str | None = None
    """Jinja template of a chat, or the path of a file that holds one (no brace, one line); ChatML by default."""
    bos: str | bool = False
    """Text of the token put before each document; true finds the tokenizer's own. Ids that come as ids stay as they
    are unless the token is named by its text."""
    eos: str | bool = True
    """Text of the token put after each document, as `bos`."""
    specials_in_text: SpecialsInText = SpecialsInText.TEXT
    """What `<|im_end|>` and the like are in documents and in the content of chats. `token` trusts whoever wrote them;
    what bos, eos and a chat template put there are special tokens either way."""
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    """Truncate documents to this many tokens, special tokens included."""
    min_tokens: Annotated[int, Field(ge=1)] = 1
    """Leave out documents shorter than this, special tokens included."""

    @model_validator(mode="after")
    def _one_way(self) -> TransformSpec:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        given = [name for name in ("text", "messages", "tokens", "function") if getattr(self, name) is not None]
        if len(given) != 1 and not (self.has_media and not given):
            yield f"give exactly one of text, messages, tokens or function, got {', '.join(given) or 'none'}"
        if self.has_media and (self.tokens is not None or self.function is not None):
            yield f"image, video and audio go with text or messages, or stand alone, got {given[0]}"
        if self.chat_template is not None and self.messages is None:
            yield "chat_template needs messages: nothing else is rendered through a template"

    @property
    def has_media(self) -> bool:
        """Whether columns of images, videos or audio are named."""
        return bool(self.media_paths)

    @property
    def media_paths(self) -> tuple[str, ...]:
        """Dotted paths of all media columns: images, then videos, then audio."""
        return (*self.image, *self.video, *self.audio)

    @property
    def is_template_file(self) -> bool:
        """Whether `chat_template` is a path: a template has a brace or several lines."""
        return self.chat_template is not None and not set(self.chat_template) & {"{", "\n"}


class SourceSpec(SpecModel):
    """One named dataset."""

    uri: str | tuple[str, ...]
    """A path, a glob or an s3:// address of shards, or several of them. Relative paths start at the spec's folder."""
    format: SourceFormat = SourceFormat.AUTO
    """Format of the shards; auto goes by their extensions. `folder`, `mds` and `energon` must be named."""
    transform: TransformSpec
    """How a row becomes token ids."""
    max_epochs: Annotated[int | None, Field(ge=1)] = None
    """How often the source may be read from beginning to end; by default without limit."""
    on_exhausted: OnExhausted = OnExhausted.RENORMALIZE
    """What happens once `max_epochs` are read: the others share its weight, the stream ends, or it fails."""
    max_bad_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01
    """More bad rows than this among the last 1,000 (and at least 20) pause the run."""
    shadows: Annotated[int, Field(ge=0, le=8)] = 0
    """Loaders that stand by for each partition's owner: warm, so that its loss is not felt. Costs `shadow_bytes`."""
    lanes: Annotated[int | None, Field(ge=1, le=1024)] = None
    """Parallel read streams; by default from shuffle_bytes. Frozen when the run is created."""
    block_bytes: Annotated[int, Field(ge=1 << 12)] = 8 << 20
    """Size of the blocks that JSONL, tar and MDS files are read in."""
    group: str = FIRST_DOT
    """How the members of a tar file make samples: `first_dot` (of the name's last part), `last_dot`, or a regular
    expression that the whole name matches, with the groups `key` and `field`."""
    split: str = "train"
    """Which split of an Energon dataset is read."""
    media_root: str | None = None
    """Where paths of media start, and what they must not leave; by default the folder of the shard that names them."""
    storage_options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the file system: for s3 endpoint_override, region, access_key, secret_key, anonymous."""

    @model_validator(mode="after")
    def _fits(self) -> SourceSpec:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        tars = (SourceFormat.AUTO, SourceFormat.WEBDATASET, SourceFormat.ENERGON)
        if self.group != FIRST_DOT and self.format not in tars:
            yield f"group is for tar files, got format {self.format}"
        if self.group not in (FIRST_DOT, LAST_DOT):
            yield from _pattern_faults(self.group)
        if self.split != "train" and self.format is not SourceFormat.ENERGON:
            yield f"split is for format energon, got format {self.format}"

    @property
    def uris(self) -> tuple[str, ...]:
        return (self.uri,) if isinstance(self.uri, str) else self.uri


def _pattern_faults(pattern: str) -> Iterator[str]:
    rule = f"group must be {FIRST_DOT}, {LAST_DOT} or a regular expression with the groups key and field"
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        yield f"{rule}, got {pattern!r}: {error}"
        return
    if not {"key", "field"} <= set(groups):
        yield f"{rule}, such as (?P<key>.+)_(?P<field>image|text)[.][a-z]+, got {pattern!r}"
