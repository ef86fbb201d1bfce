"""Parquet: row groups, nested columns, types of text, drift between shards, and damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadmaster_flight.sources import parquet
from loadmaster_flight.sources.blocks import Block, RowFault
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.source import SourceSpec, TransformSpec

from .conftest import write_parquet


def column_of(block: Block, path: str) -> list[object]:
    return block.column(path, np.arange(block.num_rows))


@pytest.fixture
def read_file(
    make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> Callable[..., list[Block]]:
    """All blocks of a one-shard source."""

    def read(path: Path, transform: TransformSpec | None = None) -> list[Block]:
        reader = open_reader(make_spec(path, transform=transform))
        return [reader.read_block(0, block) for block in range(reader.num_blocks(0) or 0)]

    return read


def test_blocks_when_read_then_are_the_row_groups(tmp_path: Path, read_file: Callable[..., list[Block]]) -> None:
    texts = [f"row {i}" if i % 3 else None for i in range(25)]
    blocks = read_file(write_parquet(tmp_path / "a.parquet", {"text": texts}, row_group_size=10))
    assert [block.num_rows for block in blocks] == [10, 10, 5]
    assert [value for block in blocks for value in column_of(block, "text")] == texts
    assert blocks[0].column("text", np.array([7, 1, 7])) == ["row 7", "row 1", "row 7"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.binary(),
        pa.large_binary(),
    ],
    ids=str,
)
def test_text_when_stored_in_any_type_then_is_a_string(
    kind: pa.DataType, tmp_path: Path, read_file: Callable[..., list[Block]]
) -> None:
    values = ["grüße", None, "", "b"]
    array = pa.array(values).cast(kind)
    (block,) = read_file(write_parquet(tmp_path / "a.parquet", {"text": array}))
    assert column_of(block, "text") == values


def test_text_when_not_utf8_then_only_that_row_is_a_fault(
    tmp_path: Path, read_file: Callable[..., list[Block]]
) -> None:
    binary = pa.array([b"a", b"\xed\xa0\x80", None, b"d"])
    as_string = pa.Array.from_buffers(pa.string(), 4, binary.buffers())
    for array in (binary, as_string):
        (block,) = read_file(write_parquet(tmp_path / "a.parquet", {"text": array}))
        fault = RowFault(reason="invalid UTF-8 at byte 0")
        assert column_of(block, "text") == ["a", fault, None, "d"]
    assert block.row(1) == fault
    assert block.row(3) == {"text": "d"}


def test_column_when_path_is_dotted_then_goes_into_structs(
    tmp_path: Path, read_file: Callable[..., list[Block]]
) -> None:
    docs = [{"body": "x", "n": 1}, {"body": None, "n": 2}, None]
    path = write_parquet(tmp_path / "a.parquet", {"doc": docs, "doc.title": ["t", "u", "v"]})
    (block,) = read_file(path, TransformSpec(text="doc.body"))
    assert column_of(block, "doc.body") == ["x", None, None]
    (block,) = read_file(path, TransformSpec(text="doc.title"))
    assert column_of(block, "doc.title") == ["t", "u", "v"]


def test_column_when_it_is_a_chat_or_token_ids_then_is_plain_python(
    tmp_path: Path, read_file: Callable[..., list[Block]]
) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}]
    path = write_parquet(tmp_path / "a.parquet", {"messages": [chat, None, []], "ids": [[1, 2], None, [3]]})
    (block,) = read_file(path, TransformSpec(messages="messages"))
    assert column_of(block, "messages") == [chat, None, []]
    (block,) = read_file(path, TransformSpec(tokens="ids"))
    assert column_of(block, "ids") == [[1, 2], None, [3]]


def test_block_when_transform_needs_one_column_then_no_other_is_read(
    tmp_path: Path, read_file: Callable[..., list[Block]]
) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["a", "b"], "big": ["x" * 100_000, "y"]})
    (block,) = read_file(path)
    assert block.row(0) == {"text": "a"}
    assert block.size_bytes < 1_000
    (whole,) = read_file(path, TransformSpec(function="mine:call"))
    assert whole.row(1) == {"text": "b", "big": "y"}


def test_column_when_a_shard_lacks_it_then_is_null_there(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    write_parquet(tmp_path / "a.parquet", {"text": ["a"], "doc": [{"body": "b"}]})
    write_parquet(tmp_path / "b.parquet", {"other": [1, 2, 3]})
    write_parquet(tmp_path / "c.parquet", {"text": pa.array(["c"], pa.large_string()), "doc": [7]})
    reader = open_reader(make_spec(tmp_path / "*.parquet"))
    assert [column_of(reader.read_block(shard, 0), "text") for shard in range(3)] == [["a"], [None] * 3, ["c"]]
    reader = open_reader(make_spec(tmp_path / "*.parquet", transform=TransformSpec(text="doc.body")))
    assert [column_of(reader.read_block(shard, 0), "doc.body") for shard in range(3)] == [["b"], [None] * 3, [None]]


@pytest.mark.parametrize("limit_bytes", [1, 1 << 30])
def test_row_group_when_read_in_pieces_then_is_the_same(
    limit_bytes: int, tmp_path: Path, read_file: Callable[..., list[Block]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_WHOLE_READ_BYTES", limit_bytes)
    monkeypatch.setattr(parquet, "_PIECE_BYTES", 40_000)
    docs = [{"body": str(i) * 700} for i in range(300)]
    (block,) = read_file(write_parquet(tmp_path / "a.parquet", {"doc": docs}), TransformSpec(text="doc.body"))
    rows = np.random.default_rng(1).permutation(300)
    assert block.column("doc.body", rows) == [docs[i]["body"] for i in rows]
    assert block.row(299) == {"doc": docs[299]}


@pytest.mark.slow
def test_row_group_when_nested_text_passes_two_gib_then_is_read(
    tmp_path: Path, read_file: Callable[..., list[Block]]
) -> None:
    long = "z" * (37 << 20)
    num_rows = 60
    body = pa.chunked_array([pa.array([{"body": long}])] * num_rows)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"doc": body}), path, compression="snappy", use_dictionary=False, write_statistics=False)
    (block,) = read_file(path, TransformSpec(text="doc.body"))
    assert block.num_rows == num_rows
    assert block.size_bytes > 2 << 30
    for value in block.column("doc.body", np.array([59, 0, 30])):
        assert value == long


def test_row_group_when_damaged_then_its_rows_are_faults_and_others_are_not(
    tmp_path: Path, read_file: Callable[..., list[Block]]
) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": [f"row {i}" for i in range(20)]}, row_group_size=10)
    start = pq.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(content)
    good, bad = read_file(path)
    assert column_of(good, "text") == [f"row {i}" for i in range(10)]
    faults = column_of(bad, "text")
    assert len(faults) == 10
    assert all(isinstance(fault, RowFault) and "cannot be decoded" in fault.reason for fault in faults)


def test_shard_when_footer_is_cut_behind_the_first_look_then_is_one_fault(
    tmp_path: Path, make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    for index in range(4):
        write_parquet(tmp_path / f"{index}.parquet", {"text": [f"{index}"]})
    path = tmp_path / "2.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    reader = open_reader(make_spec(tmp_path / "*.parquet", lanes=1))
    assert reader.num_blocks(2) == 1
    (fault,) = column_of(reader.read_block(2, 0), "text")
    assert isinstance(fault, RowFault)
    assert fault.reason.startswith("not a Parquet file")
    assert column_of(reader.read_block(3, 0), "text") == ["3"]
