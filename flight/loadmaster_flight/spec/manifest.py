"""A frozen source: the shard list and everything else that fixes its order."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .model import SpecModel
from .source import SourceFormat


class UnitKind(StrEnum):
    """What is dealt to lanes: whole shards, or blocks where a source has few shards."""

    SHARD = "shard"
    BLOCK = "block"


class ShardInfo(SpecModel):
    """One file, as it was when the run was created.

    `num_rows`, `num_bytes_of_block` and `is_seekable` are known where reading the footer (or nothing) tells them.
    """

    uri: str
    size_bytes: Annotated[int, Field(ge=0)]
    etag: str
    num_rows: int | None = None
    block_sizes: tuple[int, ...] | None = None
    """Bytes of each block, for sources whose units are blocks."""
    is_seekable: bool = True


class SourceManifest(SpecModel):
    """What is frozen of a source when a run is created."""

    name: str
    ordinal: int
    format: SourceFormat
    lanes: Annotated[int, Field(ge=1)]
    unit_kind: UnitKind
    block_bytes: int
    shards: tuple[ShardInfo, ...]
    fingerprint: str
    """SHA-256 (hex) of transform, tokenizer and template: what else decides the tokens of a row."""
    field_map: dict[str, str] = Field(default_factory=dict)
    """Field -> member of an Energon dataset, as its dataset.yaml had it."""
    excluded: tuple[str, ...] = ()
    """`shard.tar/key` of samples of an Energon dataset that are left out."""
