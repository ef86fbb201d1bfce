"""The reader of a source: patience with storage, many threads, and an end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster_flight import sources
from loadmaster_flight.sources.attempts import Patience, decode_twice
from loadmaster_flight.sources.blocks import ContentError
from loadmaster_flight.sources.files import FileStore, ShardFile
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.manifest import SourceManifest
from loadmaster_flight.spec.source import SourceSpec
from loadmaster_flight.wire.errors import SourceError, UnavailableError

from .conftest import QUICK, write_jsonl, write_parquet


def test_all_when_compared_with_the_package_then_is_sorted_and_complete() -> None:
    assert sources.__all__ == sorted(sources.__all__)
    public = {name for name, value in vars(sources).items() if not name.startswith("_") and hasattr(value, "__name__")}
    modules = {name for name in public if isinstance(vars(sources)[name], type(sources))}
    assert public - modules == set(sources.__all__)


class FlakyStore(FileStore):
    """A store whose first few openings fail."""

    def __init__(self, num_failures: int) -> None:
        super().__init__({}, source="src")
        self.num_failures = num_failures

    def open(self, uri: str) -> Any:
        if self.num_failures > 0:
            self.num_failures -= 1
            raise OSError("no route to the store")
        return super().open(uri)


@pytest.mark.parametrize(("num_failures", "is_read"), [(0, True), (2, True), (3, False)])
def test_reader_when_storage_fails_then_tries_again_a_few_times(
    num_failures: int,
    is_read: bool,
    tmp_path: Path,
    make_spec: Callable[..., SourceSpec],
    freeze: Callable[..., SourceManifest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = make_spec(write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}]))
    manifest = freeze(spec)
    monkeypatch.setattr("loadmaster_flight.sources.reader.FileStore", lambda *_, **__: FlakyStore(num_failures))
    reader = SourceReader(manifest, spec, patience=QUICK)
    if is_read:
        assert reader.read_block(0, 0).num_rows == 1
        return
    with pytest.raises(UnavailableError, match=r"source src, shard 0 \(.*a\.jsonl\) .* 3 tries: .* no route to"):
        reader.read_block(0, 0)


def test_reader_when_closed_while_it_waits_then_the_wait_ends(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
    spec = make_spec(path)
    reader = SourceReader(freeze(spec), spec, patience=Patience(first_wait_s=600, longest_wait_s=600))
    path.unlink()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.read_block, 0, 0)
        reader.close()
        with pytest.raises(UnavailableError):
            waiting.result(timeout=30)
    reader.close()


def test_reader_when_the_file_changes_under_it_then_names_it(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
    reader = open_reader(make_spec(path))
    write_jsonl(path, [{"text": "other"}])
    with pytest.raises(SourceError, match=r"a\.jsonl must not change while a run uses it: 13 bytes were frozen"):
        reader.read_block(0, 0)


def test_reader_when_many_threads_read_then_blocks_are_right(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    for index in range(30):
        write_parquet(tmp_path / f"{index:02}.parquet", {"text": [f"{index}-{i}" for i in range(4)]}, row_group_size=2)
    reader = open_reader(make_spec("*.parquet", lanes=1))
    barrier = threading.Barrier(4)

    def read(start: int) -> list[tuple[int, int, list[object]]]:
        barrier.wait(timeout=30)
        places = [((start * 7 + i) % 30, i % 2) for i in range(60)]
        return [(s, b, reader.read_block(s, b).column("text", np.arange(2))) for s, b in places]

    with ThreadPoolExecutor(4) as pool:
        for seen in pool.map(read, range(4)):
            assert all(texts == [f"{s}-{2 * b}", f"{s}-{2 * b + 1}"] for s, b, texts in seen)


def test_shard_file_when_rewritten_with_as_many_bytes_then_refused_by_name(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "abc"}])
    file = shard_file(path)
    assert file.read_at(0, 4) == b'{"te'
    later_ns = path.stat().st_mtime_ns + 1_000_000_000
    path.write_bytes(path.read_bytes().replace(b"abc", b"xyz"))
    os.utime(path, ns=(later_ns, later_ns))
    with pytest.raises(
        SourceError, match=r"a\.jsonl must not change while a run uses it: 15 bytes were frozen, got as"
    ):
        file.read_at(0, 4)


def shard_file(path: Path) -> ShardFile:
    store = FileStore({}, source="src")
    (now,) = store.expand((str(path),), path.parent)
    return ShardFile(store=store, source="src", uri=now.uri, size_bytes=now.size_bytes, etag=now.etag)


def test_decode_when_it_fails_twice_then_the_content_is_at_fault(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a", [1])
    calls: list[bytes] = []

    def decode(handle: Any) -> None:
        calls.append(handle.read())
        raise OSError("not what it should be")

    with pytest.raises(ContentError, match="not what it should be"):
        decode_twice(shard_file(path), decode)
    assert calls == [b"1\n", b"1\n"]


def test_decode_when_it_fails_once_then_the_second_result_holds(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a", [1])
    failures = [OSError("once")]

    def decode(handle: Any) -> bytes:
        if failures:
            raise failures.pop()
        return bytes(handle.read())

    assert decode_twice(shard_file(path), decode) == b"1\n"
