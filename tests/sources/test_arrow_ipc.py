"""Arrow IPC: the file format by record batch, the stream format in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from loadmaster_flight.sources.blocks import EndOfShardError, RowFault
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec.manifest import SourceManifest
from loadmaster_flight.spec.source import SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import SourceError

from .conftest import QUICK

ROWS = [[f"{i}" if i % 4 else None for i in range(start, start + 10)] for start in (0, 10, 20)]


def write_arrow(path: Path, *, is_file: bool, kind: pa.DataType | None = None) -> Path:
    """Three record batches of ten rows with a text, a nested and another column."""
    batches = [
        pa.record_batch(
            {
                "other": pa.array(range(10)),
                "text": pa.array(rows).cast(kind or pa.string()),
                "doc": pa.array([{"body": row} for row in rows]),
            }
        )
        for rows in ROWS
    ]
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, new(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


def read_all(reader: SourceReader, path: str = "text") -> list[list[object]]:
    blocks: list[list[object]] = []
    while True:
        try:
            block = reader.read_block(0, len(blocks))
        except EndOfShardError:
            return blocks
        blocks.append(block.column(path, np.arange(block.num_rows)))


@pytest.fixture
def open_path(
    make_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> Callable[..., SourceReader]:
    def make(path: Path, *, text: str = "text") -> SourceReader:
        return open_reader(make_spec(path, transform=TransformSpec(text=text)))

    return make


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("text", ["text", "doc.body"])
def test_blocks_when_read_then_are_the_record_batches(
    is_file: bool, text: str, tmp_path: Path, open_path: Callable[..., SourceReader]
) -> None:
    reader = open_path(write_arrow(tmp_path / "a.arrow", is_file=is_file), text=text)
    assert reader.num_blocks(0) == (3 if is_file else None)
    assert read_all(reader, text) == ROWS
    assert reader.num_blocks(0) == 3


@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_text_when_stored_in_any_type_then_is_a_string(
    is_file: bool, kind: pa.DataType, tmp_path: Path, open_path: Callable[..., SourceReader]
) -> None:
    if pa.types.is_dictionary(kind) and is_file:
        rows = pa.array(ROWS[0]).dictionary_encode()
        batch = pa.record_batch({"text": rows})
        with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        assert read_all(open_path(tmp_path / "a.arrow")) == ROWS[:1]
        return
    assert read_all(open_path(write_arrow(tmp_path / "a.arrow", is_file=is_file, kind=kind))) == ROWS


def test_stream_when_read_in_any_order_then_blocks_are_the_same(
    tmp_path: Path, open_path: Callable[..., SourceReader]
) -> None:
    reader = open_path(write_arrow(tmp_path / "a.arrows", is_file=False))
    for place in (2, 0, 1, 1, 0, 2):
        block = reader.read_block(0, place)
        assert block.column("text", np.arange(10)) == ROWS[place]


def test_stream_when_cut_then_batches_until_there_and_one_fault_end_the_shard(
    tmp_path: Path, open_path: Callable[..., SourceReader]
) -> None:
    path = write_arrow(tmp_path / "a.arrows", is_file=False)
    path.write_bytes(path.read_bytes()[:-300])
    reader = open_path(path)
    first, second, last = read_all(reader)
    assert [first, second] == ROWS[:2]
    (fault,) = last
    assert isinstance(fault, RowFault)
    assert fault.reason.startswith("cut archive")
    assert read_all(reader) == [first, second, last]


def test_file_when_a_batch_is_damaged_then_is_one_fault(tmp_path: Path, open_path: Callable[..., SourceReader]) -> None:
    path = write_arrow(tmp_path / "a.arrow", is_file=True)
    content = bytearray(path.read_bytes())
    with pa.ipc.open_file(path) as reader:
        one = (tmp_path / "one.arrow").open("wb")
        with one, pa.ipc.new_file(one, reader.schema) as writer:
            writer.write_batch(reader.get_batch(0))
    head = content.index(b"\xff\xff\xff\xff", content.index(b"\xff\xff\xff\xff", 8) + 4)
    content[head : head + 24] = b"\x00" * 24
    path.write_bytes(content)
    (fault,), *others = read_all(open_path(path))
    assert isinstance(fault, RowFault)
    assert others == ROWS[1:]


@pytest.mark.parametrize("is_file", [True, False])
def test_source_when_a_later_shard_has_the_other_form_then_it_is_named(
    is_file: bool, tmp_path: Path, freeze: Callable[..., SourceManifest], make_spec: Callable[..., SourceSpec]
) -> None:
    for index in range(8):
        write_arrow(tmp_path / f"{index}.arrow", is_file=is_file != (index == 5))
    spec = make_spec("*.arrow", lanes=2)
    with SourceReader(freeze(spec), spec, patience=QUICK) as reader:
        assert reader.read_block(0, 0).num_rows > 0
        with pytest.raises(SourceError, match=r"5\.arrow is an Arrow (file|stream), .*make two sources of them"):
            reader.read_block(5, 0)
