"""Compressed JSONL: file order, restart points, the cache, and archives that are cut."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest

from loadmaster_flight.sources import jsonl_stream
from loadmaster_flight.sources.blocks import EndOfShardError, RowFault
from loadmaster_flight.sources.cache import BlockCache
from loadmaster_flight.sources.decompress import PieceStream, open_pieces
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.source import SourceSpec

BLOCK_BYTES = 4096
SUFFIXES = [".gz", ".zst"]


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data, mtime=0)
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def lines_of(num_rows: int) -> bytes:
    """Rows that do not compress to nothing: what is cut off must hold rows."""
    chance = random.Random(5)
    rows = ({"text": f"{i}", "pad": chance.randbytes(chance.randrange(200)).hex()} for i in range(num_rows))
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


@pytest.fixture
def open_archive(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> Callable[..., SourceReader]:
    """A reader of one archive with the given compressed bytes."""

    def make(content: bytes, suffix: str, *, cache: BlockCache | None = None) -> SourceReader:
        path = tmp_path / f"a.jsonl{suffix}"
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
        return open_reader(make_spec(path, block_bytes=BLOCK_BYTES), cache=cache)

    return make


@pytest.fixture
def count_openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one whenever an archive is decompressed from its beginning."""
    openings: list[str] = []

    def opening(file: jsonl_stream.ShardFile, compression: jsonl_stream.Compression) -> PieceStream:
        openings.append(file.uri)
        return open_pieces(file, compression)

    monkeypatch.setattr(jsonl_stream, "open_pieces", opening)
    return openings


def read_all(reader: SourceReader) -> list[list[object]]:
    """The texts of all blocks, in order."""
    blocks: list[list[object]] = []
    while True:
        try:
            block = reader.read_block(0, len(blocks))
        except EndOfShardError:
            return blocks
        blocks.append(block.column("text", np.arange(block.num_rows)))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_blocks_when_archive_is_read_then_equal_those_of_the_plain_file(
    suffix: str,
    tmp_path: Path,
    open_archive: Callable[..., SourceReader],
    make_spec: Callable[..., SourceSpec],
    open_reader: Callable[..., SourceReader],
) -> None:
    data = b"\xef\xbb\xbf" + lines_of(500) + b'{"text": "%s"}\n\n' % (b"z" * 20_000) + lines_of(20).rstrip()
    (tmp_path / "plain.jsonl").write_bytes(data)
    plain = open_reader(make_spec(tmp_path / "plain.jsonl", block_bytes=BLOCK_BYTES))
    reader = open_archive(compress(data, suffix), suffix)
    assert reader.num_blocks(0) is None
    assert read_all(reader) == [
        block.column("text", np.arange(block.num_rows))
        for block in (plain.read_block(0, index) for index in range(plain.num_blocks(0) or 0))
    ]
    assert reader.num_blocks(0) == plain.num_blocks(0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_archive_when_it_has_several_members_then_all_are_read(
    suffix: str, open_archive: Callable[..., SourceReader]
) -> None:
    data = lines_of(300)
    whole = read_all(open_archive(compress(data, suffix), suffix))
    assert read_all(open_archive(compress(data[:9000], suffix) + compress(data[9000:], suffix), suffix)) == whole


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_archive_when_cut_then_rows_until_there_and_one_fault_end_the_shard(
    suffix: str, open_archive: Callable[..., SourceReader]
) -> None:
    content = compress(lines_of(5000), suffix)
    blocks = read_all(open_archive(content[: len(content) * 2 // 3], suffix))
    *rows, last = [text for block in blocks for text in block]
    assert 1000 < len(rows) < 5000
    assert rows == [f"{i}" for i in range(len(rows))]
    assert isinstance(last, RowFault)
    assert last.reason.startswith("cut archive")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("num_whole", [1, 3])
def test_archive_when_cut_in_its_last_member_then_every_row_before_is_read(
    suffix: str, num_whole: int, open_archive: Callable[..., SourceReader]
) -> None:
    data = lines_of(250)
    last = compress(data, suffix)[:40]
    *rows, fault = [
        t for block in read_all(open_archive(compress(data, suffix) * num_whole + last, suffix)) for t in block
    ]
    assert rows[: 250 * num_whole] == [f"{i}" for i in range(250)] * num_whole
    assert isinstance(fault, RowFault)
    assert fault.reason.startswith("cut archive")


def test_archive_when_corrupt_then_rows_until_there_and_one_fault_end_the_shard(
    open_archive: Callable[..., SourceReader],
) -> None:
    content = bytearray(compress(lines_of(5000), ".gz"))
    middle = len(content) // 2
    content[middle : middle + 64] = b"\xff" * 64
    *rows, last = [text for block in read_all(open_archive(bytes(content), ".gz")) for text in block]
    assert isinstance(last, RowFault)
    assert last.reason.startswith("corrupt archive")
    assert len(rows) > 500


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("has_cache", [True, False])
def test_block_when_read_in_any_order_then_is_the_same(
    suffix: str, has_cache: bool, tmp_path: Path, open_archive: Callable[..., SourceReader]
) -> None:
    content = compress(lines_of(1500), suffix)
    whole = read_all(open_archive(content, suffix))
    reader = open_archive(content, suffix, cache=BlockCache(tmp_path / "cache", 1 << 24) if has_cache else None)
    places = random.Random(3).choices(range(len(whole)), k=60)
    for place in places:
        block = reader.read_block(0, place)
        assert block.column("text", np.arange(block.num_rows)) == whole[place]


def test_block_when_gzip_is_read_backwards_then_restarts_in_the_middle(
    open_archive: Callable[..., SourceReader], count_openings: list[str]
) -> None:
    reader = open_archive(compress(lines_of(1500), ".gz"), ".gz")
    count_openings.clear()  # freezing had a look at it
    num_blocks = len(read_all(reader))
    for block in range(num_blocks - 1, num_blocks // 2, -1):
        reader.read_block(0, block)
    assert len(count_openings) == 1


def test_block_when_cached_then_nothing_is_decompressed_again(
    tmp_path: Path, open_archive: Callable[..., SourceReader], count_openings: list[str]
) -> None:
    content = compress(lines_of(1500), ".zst")
    cache = BlockCache(tmp_path / "cache", 1 << 24)
    whole = read_all(open_archive(content, ".zst", cache=cache))
    fresh = open_archive(content, ".zst", cache=BlockCache(tmp_path / "cache", 1 << 24))
    count_openings.clear()
    assert read_all(fresh) == whole
    assert count_openings == []


def test_fault_when_cached_then_is_read_back(tmp_path: Path, open_archive: Callable[..., SourceReader]) -> None:
    content = compress(lines_of(900), ".gz")[:-2000]
    cache = BlockCache(tmp_path / "cache", 1 << 24)
    reader = open_archive(content, ".gz", cache=cache)
    first = read_all(reader)
    assert read_all(reader) == first
    assert cache.num_hits > 0
