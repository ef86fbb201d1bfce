"""Plain JSONL: blocks by byte range, and rows that cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.sources.blocks import Block, RowFault
from loadmaster_flight.sources.files import FileStore, ShardFile
from loadmaster_flight.sources.json_block import JsonBlock
from loadmaster_flight.sources.jsonl import JsonlShard
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.source import SourceSpec

from .conftest import write_jsonl


def texts_of(block: Block, path: str = "text") -> list[object]:
    return block.column(path, np.arange(block.num_rows))


def shard_of(path: Path, block_bytes: int) -> JsonlShard:
    store = FileStore({}, source="src")
    (now,) = store.expand((str(path),), path.parent)
    file = ShardFile(store=store, source="src", uri=now.uri, size_bytes=now.size_bytes, etag=now.etag)
    return JsonlShard(file, block_bytes)


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 64), st.booleans())
def test_blocks_when_read_in_turn_then_hold_each_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], block_bytes: int, has_last_newline: bool
) -> None:
    rows = [{"text": f"{i}", "pad": "x" * length} for i, length in enumerate(lengths)]
    path = write_jsonl(tmp_path_factory.mktemp("jsonl") / "a.jsonl", rows)
    if not has_last_newline:
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    shard = shard_of(path, block_bytes)
    blocks = [shard.read(index) for index in range(shard.num_blocks())]
    assert [text for block in blocks for text in texts_of(block)] == [row["text"] for row in rows]


def test_block_when_a_row_is_longer_than_many_blocks_then_it_belongs_where_it_starts(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    long = "y" * (17 << 20)
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "a"}, {"text": long}, {"text": "b"}])
    reader = open_reader(make_spec(path, block_bytes=4 << 20))
    rows = [texts_of(reader.read_block(0, block)) for block in range(5)]
    assert reader.num_blocks(0) == 5
    assert rows == [["a", long], [], [], [], ["b"]]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "a"', "broken JSON line: "),
        (b'{"text": "\xff"}', "invalid UTF-8 at byte 10 of the line"),
        (b'{"text": "\xed\xa0\x80"}', "invalid UTF-8 at byte 10 of the line"),
        (b'{"text": "\\ud800"}', "lone surrogate at byte "),
        (b'{"text": NaN}', "broken JSON line: "),
        (b'["text"]', "a line must be a JSON object, got list"),
        (b'"text"', "a line must be a JSON object, got str"),
    ],
)
def test_row_when_its_line_is_bad_then_only_that_row_is_a_fault(line: bytes, reason: str) -> None:
    block = JsonBlock(b'{"text": "before"}\n' + line + b'\n{"text": "behind"}\n')
    before, fault, behind = texts_of(block)
    assert (before, behind) == ("before", "behind")
    assert isinstance(fault, RowFault)
    assert fault.reason.startswith(reason)
    assert block.row(1) == fault


def test_block_when_lines_are_blank_then_they_are_no_rows() -> None:
    block = JsonBlock(b'\n  \n{"text": "a"}\r\n\t\n \r\n  {"text": "b"}  \n\n')
    assert texts_of(block) == ["a", "b"]


@pytest.mark.parametrize("data", [b"", b"\n", b" ", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_block_when_nothing_but_blank_then_has_no_rows(data: bytes) -> None:
    block = JsonBlock(data, is_first=True)
    assert (block.num_rows, texts_of(block)) == (0, [])


def test_block_when_file_starts_with_a_byte_order_mark_then_it_is_stripped() -> None:
    data = b'\xef\xbb\xbf{"text": "a"}\n'
    assert texts_of(JsonBlock(data, is_first=True)) == ["a"]
    assert isinstance(texts_of(JsonBlock(data))[0], RowFault)


@pytest.mark.parametrize(
    ("path", "expected"),
    [("doc.body", "x"), ("doc", {"body": "x", "n": None}), ("doc.n", None), ("doc.body.deep", None), ("a.b", 1)],
)
def test_column_when_path_is_dotted_then_goes_into_objects(path: str, expected: object) -> None:
    block = JsonBlock(b'{"doc": {"body": "x", "n": null}, "a.b": 1, "a": {"b": 2}}\n')
    assert texts_of(block, path) == [expected]


def test_column_when_rows_are_permuted_then_values_follow() -> None:
    block = JsonBlock(b"".join(b'{"text": "%d"}\n' % i for i in range(5)))
    assert block.column("text", np.array([3, 0, 4, 0])) == ["3", "0", "4", "0"]


def test_block_when_it_ends_in_a_fault_then_the_last_row_says_so() -> None:
    block = JsonBlock(b'{"text": "a"}\n', fault="cut archive")
    assert block.num_rows == 2
    assert block.column("text", np.array([1, 0])) == [RowFault(reason="cut archive"), "a"]
    assert JsonBlock(b"", fault="cut").column("text", np.array([0])) == [RowFault(reason="cut")]
