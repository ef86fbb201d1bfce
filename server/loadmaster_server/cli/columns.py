"""Guessing which column of a source holds its text, chats or token ids, from a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import SourceFormat, SourceManifest, SourceSpec, TransformSpec

LOOKED_AT_ROWS = 20
MAX_DEPTH = 3
TEXT_NAMES = ("text", "content", "body", "document", "doc", "txt", "markdown", "code", "caption", "story", "article")
IDS_NAMES = ("input_ids", "token_ids", "tokens", "ids")
WHOLE_ROWS = TransformSpec(function="builtins:dict")
"""A transform that makes readers read every column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Where a source's content is: `kind` is the field of a TransformSpec (text, messages or tokens)."""

    kind: str
    path: str


def whole_row_source(
    uris: Sequence[str], kind: SourceFormat = SourceFormat.AUTO, storage_options: Mapping[str, Any] | None = None
) -> tuple[SourceSpec, SourceManifest]:
    """A source of some files that reads all their columns, frozen in one lane.

    Raises:
        SourceError: The files cannot be listed or read.
    """
    spec = SourceSpec(
        uri=tuple(uris), format=kind, transform=WHOLE_ROWS, lanes=1, storage_options=dict(storage_options or {})
    )
    manifest = freeze_source(
        "files", 0, spec, base_dir=Path.cwd(), shuffle_bytes=spec.block_bytes, fingerprint="", progress=None
    )
    return spec, manifest


def first_rows(spec: SourceSpec, manifest: SourceManifest, limit: int = LOOKED_AT_ROWS) -> list[dict[str, object]]:
    """The first readable rows of a source, in file order."""
    rows: list[dict[str, object]] = []
    with SourceReader(manifest, spec) as reader:
        for row in _rows_in_file_order(reader, len(manifest.shards)):
            if not isinstance(row, RowFault):
                rows.append(row)
            if len(rows) == limit:
                break
    return rows


def _rows_in_file_order(reader: SourceReader, num_shards: int) -> Iterator[dict[str, object] | RowFault]:
    for shard in range(num_shards):
        for block in reader.blocks(shard):
            yield from (block.row(index) for index in range(block.num_rows))


def guess_column(rows: Sequence[Mapping[str, object]]) -> Column | None:
    """The likeliest column: chats first, then ids by name, then text by name or length, then any ids; None for none."""
    values = values_by_path(rows)
    chats = [path for path, column in values.items() if all(map(_is_chat, column))]
    if chats:
        return Column(kind="messages", path=chats[0])
    ids = [path for path, column in values.items() if all(map(_is_ids, column))]
    named_ids = [path for path in ids if path.rpartition(".")[2] in IDS_NAMES]
    if named_ids:
        return Column(kind="tokens", path=named_ids[0])
    texts = {path: column for path, column in values.items() if all(isinstance(value, str) for value in column)}
    if texts:
        return Column(kind="text", path=min(texts, key=lambda path: _text_rank(path, texts[path])))
    return Column(kind="tokens", path=ids[0]) if ids else None


def _text_rank(path: str, column: Sequence[Any]) -> tuple[int, float]:
    """Well-known names first, in their order; then the longer texts."""
    name = path.rpartition(".")[2].lower()
    rank = TEXT_NAMES.index(name) if name in TEXT_NAMES else len(TEXT_NAMES)
    return rank, -sum(map(len, column)) / len(column)


def values_by_path(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """Per dotted path the values that are not null; mappings are entered a few levels deep."""
    values: dict[str, list[object]] = {}
    for row in rows:
        for path, value in _leaves(row, "", MAX_DEPTH):
            values.setdefault(path, []).append(value)
    return values


def _leaves(row: Mapping[str, object], prefix: str, depth: int) -> Iterator[tuple[str, object]]:
    for name, value in row.items():
        if isinstance(value, Mapping) and depth > 1:
            yield from _leaves(value, f"{prefix}{name}.", depth - 1)
        elif value is not None and not name.startswith("__"):
            yield prefix + name, value


def _is_chat(value: object) -> bool:
    is_list = isinstance(value, (list, tuple)) and len(value) > 0
    return is_list and all(isinstance(m, Mapping) and {"role", "content"} <= set(m) for m in value)  # type: ignore[attr-defined]


def _is_ids(value: object) -> bool:
    if not isinstance(value, (list, tuple, np.ndarray)) or not len(value):
        return False
    return all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in value)
