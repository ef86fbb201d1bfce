"""MDS folders: every encoding, blocks, compression, damage, and pickles that stay closed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import RowFault
from loadmaster_flight.sources.mds_values import decode_value
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.sources.survey import survey_source
from loadmaster_flight.spec.manifest import SourceManifest, UnitKind
from loadmaster_flight.spec.source import SourceSpec, TransformSpec
from loadmaster_flight.wire.errors import SourceError
from support.mds_writer import shard_bytes, write_mds

COLUMNS = {"text": "str", "image": "jpeg", "num": "int", "meta": "json", "odd": "pkl"}
EVERYTHING = TransformSpec(function="mine:call")


def sample(i: int) -> dict[str, Any]:
    meta = {"lang": {"name": f"l{i}"}}
    return {"text": f"text {i}", "image": bytes([i % 256]) * 500, "num": -i, "meta": meta, "odd": b"\x80\x04N."}


@pytest.fixture
def mds_spec(make_spec: Callable[..., SourceSpec]) -> Callable[..., SourceSpec]:
    def make(folder: Path, **fields: Any) -> SourceSpec:
        return make_spec(folder, format="mds", block_bytes=4096, **fields)

    return make


def all_values(reader: SourceReader, shards: int, path: str) -> list[object]:
    blocks = [block for shard in range(shards) for block in reader.blocks(shard)]
    return [value for block in blocks for value in block.column(path, np.arange(block.num_rows))]


@pytest.mark.parametrize("is_packed", [False, True])
def test_shards_when_read_in_blocks_then_hold_each_sample_once_in_order(
    is_packed: bool, tmp_path: Path, mds_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    shards = [[sample(i) for i in range(40)], [sample(i) for i in range(40, 55)]]
    spec = mds_spec(write_mds(tmp_path / "data", COLUMNS, shards, is_packed=is_packed), transform=EVERYTHING)
    with open_reader(spec) as reader:
        assert all_values(reader, 2, "text") == [f"text {i}" for i in range(55)]
        assert all_values(reader, 2, "image") == [bytes([i]) * 500 for i in range(55)]
        assert all_values(reader, 2, "num") == [-i for i in range(55)]
        assert all_values(reader, 2, "meta.lang.name") == [f"l{i}" for i in range(55)]
        assert (reader.num_blocks(0) == 1) is is_packed


def test_inventory_when_index_tells_then_counts_without_reading(
    tmp_path: Path, mds_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    spec = mds_spec(write_mds(tmp_path / "data", COLUMNS, [[sample(i) for i in range(40)]]))
    manifest = freeze(spec)
    survey = survey_source(manifest, spec)
    assert (survey.num_rows, survey.is_estimate, survey.shards) == (40, False, 1)
    assert manifest.unit_kind is UnitKind.BLOCK
    assert survey.blocks == len(manifest.shards[0].block_sizes or ())


def test_pickle_when_named_then_is_never_opened(
    tmp_path: Path, mds_spec: Callable[..., SourceSpec], open_reader: Callable[..., SourceReader]
) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    rows = [sample(0) | {"odd": pickle.dumps(Bomb())}]
    reader = open_reader(mds_spec(write_mds(tmp_path / "data", COLUMNS, [rows]), transform=EVERYTHING))
    assert all_values(reader, 1, "odd") == [RowFault(reason="column odd is a pickle: pickles are never opened")]
    row = reader.read_block(0, 0).row(0)
    assert not isinstance(row, RowFault)
    assert row["text"] == "text 0"
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("encoding", "data", "expected"),
    [
        ("bytes", b"\xff", b"\xff"),
        ("str_int", b"-12345678901234567890", -12345678901234567890),
        ("str_float", b"1.5e300", 1.5e300),
        ("str_decimal", b"1.10", "1.10"),
        ("uint16", b"\x01\x02", 513),
        ("float32", b"\x00\x00\x80?", 1.0),
        ("list[png]", b"\0\0\0\0\2\0\0\0\1\0\0\0\2\0\0\0abb", [b"a", b"bb"]),
        ("jpeg_array", b"\2\0\0\0\1\0\0\0\2\0\0\0abb", [b"a", b"bb"]),
        ("json", b"[1, 2]", [1, 2]),
    ],
)
def test_value_when_decoded_then_is_what_was_written(encoding: str, data: bytes, expected: object) -> None:
    assert decode_value(encoding, data, "c") == expected


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("ndarray:int32:2,3", np.arange(6, dtype=np.int32).tobytes()),
        ("ndarray:int32", bytes([2 << 2, 2, 3]) + np.arange(6, dtype=np.int32).tobytes()),
        ("ndarray", bytes([33, 2 << 2 | 1, 2, 0, 3, 0]) + np.arange(6, dtype=np.int32).tobytes()),
    ],
)
def test_array_when_its_shape_stands_anywhere_then_is_whole(encoding: str, data: bytes) -> None:
    value = decode_value(encoding, data, "c")
    assert isinstance(value, np.ndarray)
    assert value.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("encoding", "data", "reason"),
    [
        ("int", b"123", "column c is no int"),
        ("ndarray", b"", "column c is no ndarray"),
        ("json", b"{", "column c is no json"),
        ("jpeg_array", b"\xff\xff\xff\xff", "column c is no jpeg_array"),
        ("list[jpeg]", b"\0\0\0\0\1\0\0\0\5\0\0\0a", "1 values end at byte 17 of 13"),
        ("pil", b"", "raw pixels"),
        ("exotic", b"", "unknown encoding"),
        ("str", b"\xff", "invalid UTF-8 at byte 0"),
    ],
)
def test_value_when_it_cannot_be_decoded_then_is_a_fault(encoding: str, data: bytes, reason: str) -> None:
    value = decode_value(encoding, data, "c")
    assert isinstance(value, RowFault)
    assert reason in value.reason


@pytest.mark.parametrize(("damage", "reason"), [("head", "do not fit a head"), ("row", "the columns of a sample take")])
def test_shard_when_damaged_inside_then_rows_are_faults(
    damage: str,
    reason: str,
    tmp_path: Path,
    mds_spec: Callable[..., SourceSpec],
    open_reader: Callable[..., SourceReader],
) -> None:
    folder = write_mds(tmp_path / "data", COLUMNS, [[sample(i) for i in range(3)]])
    path = folder / "shard.00000.mds"
    content = bytearray(path.read_bytes())
    at = 0 if damage == "head" else int.from_bytes(content[4:8], "little")
    content[at : at + 3] = b"\xff\xff\xff"
    path.write_bytes(content)
    values = all_values(open_reader(mds_spec(folder)), 1, "text")
    assert isinstance(values[0], RowFault)
    assert reason in values[0].reason
    assert values[1:] == ([] if damage == "head" else ["text 1", "text 2"])


def test_shard_when_cut_then_refuses_to_start(
    tmp_path: Path, mds_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    folder = write_mds(tmp_path / "data", COLUMNS, [[sample(0)]])
    path = folder / "shard.00000.mds"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SourceError, match=r"bytes that index\.json tells"):
        freeze(mds_spec(folder))


def test_index_when_missing_or_of_another_format_then_refuses_to_start(
    tmp_path: Path, mds_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    folder = write_mds(tmp_path / "data", COLUMNS, [[sample(0)]])
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0]["format"] = "xsv"
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(SourceError, match="format must be mds, version 2, got xsv"):
        freeze(mds_spec(folder))
    (folder / "index.json").unlink()
    with pytest.raises(SourceError, match=r"index\.json must be there"):
        freeze(mds_spec(folder))


def test_column_when_no_shard_has_it_then_the_near_one_is_named(
    tmp_path: Path, mds_spec: Callable[..., SourceSpec], freeze: Callable[..., SourceManifest]
) -> None:
    spec = mds_spec(write_mds(tmp_path / "data", COLUMNS, [[sample(0)]]), transform=TransformSpec(image="imagee"))
    with pytest.raises(SourceError, match=r"sources\.src\.transform\.image: .* did you mean image\?"):
        freeze(spec)


def test_shard_bytes_when_written_then_follow_the_published_layout() -> None:
    data = shard_bytes({"a": "int", "b": "str"}, [{"a": 7, "b": "xy"}])
    start = int.from_bytes(data[4:8], "little")
    assert data[:4] == b"\1\0\0\0"
    assert data[start:] == b"\2\0\0\0" + (7).to_bytes(8, "little") + b"xy"
