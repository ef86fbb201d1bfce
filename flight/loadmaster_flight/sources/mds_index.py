"""index.json of an MDS folder: which shards there are, and of what size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from ..wire.errors import SourceError
from .blocks import ContentError
from .files import FileStore, source_error
from .mds import STREAMED, MdsColumns, columns_of

INDEX = "index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedShard:
    """One shard as index.json tells of it. raw_bytes: of the decompressed shard; size_bytes: of the file."""

    uri: str
    num_rows: int
    size_bytes: int
    raw_bytes: int
    columns: MdsColumns


def read_index(store: FileStore, source: str, folder: str) -> list[IndexedShard]:
    """The shards of a folder, in order.

    Raises:
        SourceError: There is no index.json, or it tells of shards that cannot be read; names file and rule.
    """
    uri = f"{folder.rstrip('/').removesuffix('/' + INDEX)}/{INDEX}"
    try:
        index = orjson.loads(store.read_whole(uri))
        return [_shard(shard, uri.removesuffix(INDEX)) for shard in index["shards"]]
    except FileNotFoundError as error:
        raise source_error(source, uri, "must be there: a folder of MDS shards has one") from error
    except (OSError, orjson.JSONDecodeError, ContentError, KeyError, TypeError) as error:
        raise _wrong(source, uri, error) from error


def _wrong(source: str, uri: str, error: Exception) -> SourceError:
    reason = f"has no {error}" if isinstance(error, KeyError) else f"cannot be used: {error}"
    return source_error(source, uri, reason)


def _shard(told: Any, folder: str) -> IndexedShard:
    if (told["format"], told["version"]) != ("mds", 2):
        raise ContentError(f"format must be mds, version 2, got {told['format']}, version {told['version']}")
    packed = told.get("zip_data")
    compression = str(told.get("compression") or "").partition(":")[0]
    if packed and compression not in STREAMED:
        raise ContentError(f"compression must be one of {', '.join(STREAMED)}, got {compression}")
    file = packed or told["raw_data"]
    return IndexedShard(
        uri=folder + str(file["basename"]),
        num_rows=int(told["samples"]),
        size_bytes=int(file["bytes"]),
        raw_bytes=int(told["raw_data"]["bytes"]),
        columns=columns_of(told),
    )
