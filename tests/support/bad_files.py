"""Sources with damage of every kind, and for each what a run must make of it: the rows it serves, and the verdicts."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Place = tuple[int, int, int]
"""Shard, block, row."""
NUM_GOOD = 30
BIG_ROW_BYTES = 20 << 20
DAMAGE_BYTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedSource:
    """A source of a run spec, the places of its good rows, and reasons (their beginnings) by place of the others."""

    tree: dict[str, Any]
    good: frozenset[Place]
    verdicts: dict[Place, str] = field(default_factory=dict)


def sentence(i: int) -> str:
    return f"row {i}: the loader reads every manifest " + "and balances the hold " * (i % 5)


def _source(uri: Path, transform: dict[str, Any], good: Iterable[Place], **rest: Any) -> DamagedSource:
    verdicts = rest.pop("verdicts", {})
    tree = {"uri": str(uri), "transform": transform, "max_bad_ratio": 1.0, **rest}
    return DamagedSource(tree=tree, good=frozenset(good), verdicts=verdicts)


def json_lines(texts: Iterable[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def _odd_lines(folder: Path) -> DamagedSource:
    """Lines that are no sample between good ones, behind a byte order mark."""
    odd = {
        b'{"text": "broken': "broken JSON line",
        b'{"text": "\xff\xfe"}': "invalid UTF-8",
        b'{"text": "\\ud800 alone"}': "lone surrogate",
        b'{"text": null}': "null text",
        b'{"other": "the hold"}': "null text",
        b'{"text": " \\n"}': "empty text",
        b'{"text": 7}': "text must be a string",
        b'["the hold"]': "a line must be a JSON object",
        b"\x00\x00\x00\x00": "broken JSON line",
    }
    good = json_lines(sentence(i) for i in range(NUM_GOOD)).splitlines()
    lines = [line for pair in zip(good, odd, strict=False) for line in pair] + good[len(odd) :]
    path = folder / "odd" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbf" + b"\n\r\n".join(lines))
    verdicts = {(0, 0, lines.index(line)): reason for line, reason in odd.items()}
    places = {(0, 0, row) for row in range(len(lines))}
    return _source(path, {"text": "text"}, places - set(verdicts), verdicts=verdicts)


def _cut_gzip(folder: Path) -> DamagedSource:
    packed = gzip.compress(json_lines(sentence(i * i) for i in range(3 * NUM_GOOD)), mtime=0)
    path = folder / "cut.jsonl.gz"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    whole = zlib.decompressobj(wbits=31).decompress(path.read_bytes()).count(b"\n")
    assert 0 < whole < 3 * NUM_GOOD
    places = [(0, 0, row) for row in range(whole)]
    return _source(path, {"text": "text"}, places, verdicts={(0, 0, whole): "cut archive"})


def _cut_zstd(folder: Path) -> DamagedSource:
    packed: bytes = pa.compress(json_lines(sentence(i) for i in range(NUM_GOOD)), "zstd", asbytes=True)
    path = folder / "cut.jsonl.zst"
    path.write_bytes(packed + packed[: len(packed) // 2])
    places = [(0, 0, row) for row in range(NUM_GOOD)]
    return _source(path, {"text": "text"}, places, verdicts={(0, 0, NUM_GOOD): "cut archive"})


def _cut_tar(folder: Path) -> DamagedSource:
    path = folder / "cut.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(NUM_GOOD):
            body = sentence(i).encode()
            info = tarfile.TarInfo(f"{i:04}.txt")
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    num_whole = NUM_GOOD - 5  # every member is one record of header and one of content
    path.write_bytes(path.read_bytes()[: num_whole * 1024 + 520])
    places = [(0, 0, row) for row in range(num_whole)]
    return _source(path, {"text": "txt"}, places, verdicts={(0, 0, num_whole): "cut archive"})


def _write_shards(folder: Path, num: int) -> list[Path]:
    folder.mkdir()
    paths = [folder / f"{shard:02}.parquet" for shard in range(num)]
    for shard, path in enumerate(paths):
        pq.write_table(pa.table({"text": [sentence(shard + 10 * i) for i in range(10)]}), path, row_group_size=5)
    return paths


def _all_places(num_shards: int) -> set[Place]:
    return {(shard, group, row) for shard in range(num_shards) for group in range(2) for row in range(5)}


def _no_footer(folder: Path) -> DamagedSource:
    """So many shards that a run starts without reading all footers."""
    paths = _write_shards(folder / "footer", 8)
    paths[5].write_bytes(paths[5].read_bytes()[:-20])
    good = {place for place in _all_places(8) if place[0] != 5}
    verdicts = {(5, 0, 0): "not a Parquet file"}
    return _source(folder / "footer" / "*.parquet", {"text": "text"}, good, lanes=2, verdicts=verdicts)


def _bad_pages(folder: Path) -> DamagedSource:
    path = _write_shards(folder / "pages", 3)[1]
    start = pq.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + DAMAGE_BYTES] = b"\xff" * DAMAGE_BYTES
    path.write_bytes(content)
    verdicts = {(1, 1, row): "row group cannot be decoded" for row in range(5)}
    return _source(folder / "pages" / "*.parquet", {"text": "text"}, _all_places(3) - set(verdicts), verdicts=verdicts)


def _no_column(folder: Path) -> DamagedSource:
    path = _write_shards(folder / "drift", 3)[2]
    pq.write_table(pa.table({"body": [sentence(i) for i in range(10)]}), path, row_group_size=5)
    verdicts = {place: "null text" for place in _all_places(3) if place[0] == 2}
    return _source(folder / "drift" / "*.parquet", {"text": "text"}, _all_places(3) - set(verdicts), verdicts=verdicts)


def _bad_ids(folder: Path) -> DamagedSource:
    ids = [[1, 2, 3 + i] * 15 for i in range(NUM_GOOD)]
    odd = {4: [1, 99999], 9: [-1, 2], 14: [2**31, 5], 20: []}
    path = folder / "ids.arrow"
    table = pa.table({"ids": pa.array([odd.get(i, row) for i, row in enumerate(ids)], pa.list_(pa.int64()))})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    verdicts = {(0, 0, row): "token id" if value else "empty tokens" for row, value in odd.items()}
    return _source(path, {"tokens": "ids"}, {(0, 0, row) for row in range(NUM_GOOD)} - set(verdicts), verdicts=verdicts)


def _big_row(folder: Path) -> DamagedSource:
    """A row far larger than a block and than a Flight message, in the middle; good, but truncated."""
    path = folder / "big.jsonl"
    word = "loadmaster" * 10 + " "  # long ones, that a tokenizer finds in its cache
    words = json.dumps({"text": word * (BIG_ROW_BYTES // len(word))}).encode() + b"\n"
    rows = [json_lines([sentence(i)]) for i in range(NUM_GOOD)]
    path.write_bytes(b"".join([*rows[:7], words, *rows[7:]]))
    block_bytes = 1 << 16
    last = (len(b"".join(rows[:7])) + len(words)) // block_bytes
    places = [(0, 0, row) for row in range(8)] + [(0, last, row) for row in range(NUM_GOOD - 7)]
    return _source(path, {"text": "text", "max_tokens": 900}, places, block_bytes=block_bytes)


def _some_empty(folder: Path) -> DamagedSource:
    """Empty shards among others are no fault of a plain JSONL source."""
    (folder / "empty").mkdir()
    (folder / "empty" / "0.jsonl").write_bytes(b"")
    (folder / "empty" / "1.jsonl").write_bytes(json_lines(sentence(i) for i in range(NUM_GOOD)))
    (folder / "empty" / "2.jsonl").write_bytes(b"\n\n")
    return _source(folder / "empty" / "*.jsonl", {"text": "text"}, [(1, 0, row) for row in range(NUM_GOOD)])


_WRITERS: dict[str, Callable[[Path], DamagedSource]] = {
    "odd-lines": _odd_lines,
    "cut-gzip": _cut_gzip,
    "cut-zstd": _cut_zstd,
    "cut-tar": _cut_tar,
    "no-footer": _no_footer,
    "bad-pages": _bad_pages,
    "no-column": _no_column,
    "bad-ids": _bad_ids,
    "big-row": _big_row,
    "some-empty": _some_empty,
}


def write_damaged(folder: Path) -> dict[str, DamagedSource]:
    """All of them, by name."""
    return {name: write(folder) for name, write in _WRITERS.items()}
