"""Factories of sources on disk."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadmaster_flight.sources.attempts import Patience
from loadmaster_flight.sources.cache import BlockCache
from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.manifest import SourceManifest
from loadmaster_flight.spec.source import SourceSpec, TransformSpec

QUICK = Patience(tries=3, first_wait_s=0.001, longest_wait_s=0.002)
"""Real waits would only slow tests down."""


@pytest.fixture
def make_spec() -> Callable[..., SourceSpec]:
    """A spec of one source; the transform reads the text column `text` unless told otherwise."""

    def make(uri: str | Path | Iterable[str], *, transform: TransformSpec | None = None, **fields: Any) -> SourceSpec:
        uris: Any = str(uri) if isinstance(uri, (str, Path)) else tuple(uri)
        return SourceSpec(uri=uris, transform=transform or TransformSpec(text="text"), **fields)

    return make


@pytest.fixture
def freeze(tmp_path: Path) -> Callable[..., SourceManifest]:
    """Freeze a spec as source `src` with 1 MiB to shuffle in, unless told otherwise."""

    def make(spec: SourceSpec, *, shuffle_bytes: int = 1 << 20, name: str = "src", **fields: Any) -> SourceManifest:
        return freeze_source(
            name, 0, spec, base_dir=tmp_path, shuffle_bytes=shuffle_bytes, fingerprint="0" * 64, **fields
        )

    return make


@pytest.fixture
def open_reader(freeze: Callable[..., SourceManifest]) -> Callable[..., SourceReader]:
    """Freeze a spec and open a reader that loses its patience quickly."""

    def make(
        spec: SourceSpec, *, manifest: SourceManifest | None = None, cache: BlockCache | None = None
    ) -> SourceReader:
        return SourceReader(manifest or freeze(spec), spec, cache=cache, patience=QUICK)

    return make


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    """One JSON value a line."""
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    """A Parquet file of a table of `columns`."""
    pq.write_table(pa.table(columns), path, **options)
    return path


def tar_of(members: Iterable[tuple[str, bytes]]) -> bytes:
    """A tar archive with regular members of these names and contents."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return target.getvalue()
