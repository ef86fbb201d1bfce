"""The order of a source: each row once an epoch, the same from any cursor and for any partition."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.sources import LaneReader, SourceReader, Unit, block_sequence, lane_units, row_order
from loadmaster_flight.spec.manifest import ShardInfo, SourceManifest, UnitKind
from loadmaster_flight.spec.source import SourceFormat, SourceSpec, TransformSpec

from .conftest import write_jsonl

SPEC_TRANSFORM = TransformSpec(text="text")


def manifest_of(
    block_sizes: list[list[int]], *, lanes: int = 1, unit_kind: UnitKind = UnitKind.BLOCK, is_seekable: bool = True
) -> SourceManifest:
    shards = tuple(
        ShardInfo(uri=f"{i}.jsonl", size_bytes=sum(s), etag="e", block_sizes=tuple(s), is_seekable=is_seekable)
        for i, s in enumerate(block_sizes)
    )
    return SourceManifest(
        name="src",
        ordinal=0,
        format=SourceFormat.JSONL,
        lanes=lanes,
        unit_kind=unit_kind,
        block_bytes=4096,
        shards=shards,
        fingerprint="0" * 64,
    )


sizes = st.lists(st.lists(st.integers(0, 10_000), max_size=6), min_size=1, max_size=6)


@given(sizes, st.integers(1, 9), st.sampled_from(UnitKind), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_lane_units_when_dealt_then_each_unit_is_in_one_lane_once(
    block_sizes: list[list[int]], lanes: int, unit_kind: UnitKind, seed: int, epoch: int
) -> None:
    dealt = lane_units(manifest_of(block_sizes, lanes=lanes, unit_kind=unit_kind), seed, epoch)
    if unit_kind is UnitKind.SHARD:
        expected = [Unit(shard, -1) for shard in range(len(block_sizes))]
    else:
        expected = [Unit(shard, block) for shard, blocks in enumerate(block_sizes) for block in range(len(blocks))]
    assert len(dealt) == lanes
    assert sorted(unit for lane in dealt for unit in lane) == expected


@given(sizes, st.integers(1, 9), st.integers(0, 2**63 - 1))
def test_lane_units_when_dealt_then_no_lane_leads_by_more_than_one_unit(
    block_sizes: list[list[int]], lanes: int, seed: int
) -> None:
    dealt = lane_units(manifest_of(block_sizes, lanes=lanes), seed, 0)
    loads = [sum(block_sizes[unit.shard][unit.block] for unit in lane) for lane in dealt]
    longest = max((size for blocks in block_sizes for size in blocks), default=0)
    assert max(loads) - min(loads) <= longest


@given(st.integers(1, 40), st.integers(0, 2**63 - 1))
def test_block_sequence_when_shard_is_seekable_then_is_a_permutation(num_blocks: int, seed: int) -> None:
    manifest = manifest_of([[1] * num_blocks], unit_kind=UnitKind.SHARD)
    assert sorted(block_sequence(manifest, seed, 0, Unit(0, -1), num_blocks)) == list(range(num_blocks))


def test_block_sequence_when_shard_is_a_stream_then_keeps_file_order() -> None:
    manifest = manifest_of([[1] * 20], unit_kind=UnitKind.SHARD, is_seekable=False)
    assert block_sequence(manifest, 7, 3, Unit(0, -1), 20) == list(range(20))


def test_block_sequence_when_unit_is_a_block_then_is_that_block() -> None:
    assert block_sequence(manifest_of([[1] * 5]), 7, 0, Unit(0, 3), 1) == [3]


@given(st.integers(0, 300), st.integers(0, 2**63 - 1), st.integers(0, 3))
def test_row_order_when_block_is_resident_then_is_a_permutation(num_rows: int, seed: int, epoch: int) -> None:
    order = row_order(manifest_of([[1]]), seed, epoch, 0, 0, num_rows)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(num_rows))


def test_row_order_when_jsonl_is_compressed_then_keeps_file_order() -> None:
    assert row_order(manifest_of([[1]], is_seekable=False), 7, 0, 0, 0, 9).tolist() == list(range(9))


def test_row_order_when_epoch_or_seed_changes_then_so_does_the_order() -> None:
    manifest = manifest_of([[1, 1]])
    orders = {
        tuple(row_order(manifest, seed, epoch, 0, block, 50).tolist())
        for seed in (1, 2)
        for epoch in (0, 1)
        for block in (0, 1)
    }
    assert len(orders) == 8


def test_order_when_computed_again_then_is_the_golden_one() -> None:
    manifest = manifest_of([[100, 200, 300], [50, 60], [1000]], lanes=2)
    text = repr((lane_units(manifest, 11, 2), row_order(manifest, 11, 2, 0, 1, 20).tolist()))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "302b13df3b4dc7a7"


# Whole orders, read from files: rows carry their own number, so that what is read can be counted.

NUM_ROWS = 400


@pytest.fixture(scope="module")
def shard_paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("order")
    rows = [{"text": f"{i}", "pad": "x" * (i * 37 % 300)} for i in range(NUM_ROWS)]
    cuts = [0, 10, 150, 151, NUM_ROWS]
    return [write_jsonl(folder / f"{k}.jsonl", rows[a:b]) for k, (a, b) in enumerate(itertools.pairwise(cuts))]


def file_manifest(paths: list[Path], *, lanes: int, unit_kind: UnitKind) -> SourceManifest:
    shards = []
    for path in paths:
        size, changed_ns = path.stat().st_size, path.stat().st_mtime_ns
        blocks = tuple(min(4096, size - start) for start in range(0, size, 4096))
        shards.append(ShardInfo(uri=str(path), size_bytes=size, etag=f"{size}-{changed_ns}", block_sizes=blocks))
    return manifest_of([[1]], lanes=lanes, unit_kind=unit_kind).model_copy(update={"shards": tuple(shards)})


def read_lane(reader: LaneReader, limit: int) -> list[str]:
    """The texts of a lane to its end."""
    texts: list[str] = []
    while (rows := reader.next_rows(limit)) is not None:
        texts += [str(value) for value in rows.block_data.column("text", rows.rows)]
    return texts


def open_source(paths: list[Path], lanes: int, unit_kind: UnitKind) -> tuple[SourceReader, SourceManifest]:
    manifest = file_manifest(paths, lanes=lanes, unit_kind=unit_kind)
    return SourceReader(manifest, SourceSpec(uri="unused", transform=SPEC_TRANSFORM)), manifest


@given(st.integers(1, 12), st.sampled_from(UnitKind), st.integers(0, 2**63 - 1), st.integers(0, 3), st.integers(1, 90))
def test_lanes_when_read_to_the_end_then_hold_each_row_exactly_once(
    shard_paths: list[Path], lanes: int, unit_kind: UnitKind, seed: int, epoch: int, limit: int
) -> None:
    reader, manifest = open_source(shard_paths, lanes, unit_kind)
    texts = [
        text
        for lane in range(lanes)
        for text in read_lane(LaneReader(reader, manifest, seed, epoch, [lane, 0, 0, 0]), limit)
    ]
    assert sorted(map(int, texts)) == list(range(NUM_ROWS))


@given(st.integers(1, 4), st.sampled_from(UnitKind), st.integers(0, 2**63 - 1), st.integers(1, 60), st.integers(0, 30))
def test_lane_when_restarted_from_any_cursor_then_goes_on_identically(
    shard_paths: list[Path], lanes: int, unit_kind: UnitKind, seed: int, limit: int, num_calls: int
) -> None:
    reader, manifest = open_source(shard_paths, lanes, unit_kind)
    whole = read_lane(LaneReader(reader, manifest, seed, 0, [0, 0, 0, 0]), 1 << 20)
    first = LaneReader(reader, manifest, seed, 0, [0, 0, 0, 0])
    num_read = 0
    for _ in range(num_calls):
        rows = first.next_rows(limit)
        num_read += 0 if rows is None else len(rows.rows)
    fresh, _ = open_source(shard_paths, lanes, unit_kind)
    assert read_lane(LaneReader(fresh, manifest, seed, 0, first.cursor), 7) == whole[num_read:]


@given(st.integers(2, 8), st.sampled_from(UnitKind), st.integers(0, 2**63 - 1), st.data())
def test_lanes_when_split_into_partitions_then_each_lane_stays_the_same(
    shard_paths: list[Path], lanes: int, unit_kind: UnitKind, seed: int, data: st.DataObject
) -> None:
    partitions = data.draw(st.integers(1, lanes))
    one, manifest = open_source(shard_paths, lanes, unit_kind)
    alone = [read_lane(LaneReader(one, manifest, seed, 1, [lane, 0, 0, 0]), 64) for lane in range(lanes)]
    apart: dict[int, list[str]] = {}
    for k in range(partitions):
        reader, _ = open_source(shard_paths, lanes, unit_kind)
        for lane in reversed([lane for lane in range(lanes) if lane % partitions == k]):
            apart[lane] = read_lane(LaneReader(reader, manifest, seed, 1, [lane, 0, 0, 0]), 13)
    assert [apart[lane] for lane in range(lanes)] == alone


def test_lane_rows_when_taken_then_say_where_they_stand(shard_paths: list[Path]) -> None:
    reader, manifest = open_source(shard_paths, 1, UnitKind.SHARD)
    lane = LaneReader(reader, manifest, 5, 0, [0, 0, 0, 0])
    first, second = lane.next_rows(3), lane.next_rows(3)
    assert first is not None
    assert second is not None
    order = row_order(manifest, 5, 0, first.shard, first.block, first.block_data.num_rows)
    assert (first.pos_start, first.rows.tolist()) == (0, order[:3].tolist())
    assert (second.pos_start, second.rows.tolist()) == (3, order[3:6].tolist())


def test_lane_when_asked_for_no_rows_then_says_so(shard_paths: list[Path]) -> None:
    reader, manifest = open_source(shard_paths, 1, UnitKind.SHARD)
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        LaneReader(reader, manifest, 5, 0, [0, 0, 0, 0]).next_rows(0)
