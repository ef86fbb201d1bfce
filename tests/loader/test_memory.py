"""What the engine keeps and reads again when budgets are small: large rows, many sources."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadmaster_flight.loader.chunk import Chunk
from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.wire.schemas import Verdict

MIB = 1 << 20
OpenEngine = Callable[..., LoaderEngine]


@pytest.fixture
def open_engine() -> Iterator[OpenEngine]:
    """Engines over sources of token ids, one Parquet file each; keyword arguments are budgets."""
    engines: list[LoaderEngine] = []

    def make(files: list[Path], *, lanes: int, workers: int = 2, **budgets: int) -> LoaderEngine:
        sources = {
            path.stem: {"uri": str(path), "transform": {"tokens": "ids"}, "lanes": lanes, "block_bytes": 4096}
            for path in files
        }
        tree = {"run": "big", "vocab_size": 1 << 20, "sources": sources, "batch": {"seq_len": 64, "microbatches": 1}}
        spec = RunSpec.model_validate(tree | {"budgets": budgets})
        manifests = [
            freeze_source(
                name,
                ordinal,
                source,
                base_dir=Path.cwd(),
                shuffle_bytes=budgets.get("shuffle_bytes", MIB),
                fingerprint=build_transform(spec, name).fingerprint,
            )
            for ordinal, (name, source) in enumerate(spec.sources.items())
        ]
        engines.append(LoaderEngine(spec, manifests, cache_dir=None, workers=workers))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def write_ids(path: Path, lengths: list[int], *, row_group_size: int) -> Path:
    rows = [np.full(length, index, np.int32) for index, length in enumerate(lengths)]
    pq.write_table(pa.table({"ids": pa.array(rows, pa.list_(pa.int32()))}), path, row_group_size=row_group_size)
    return path


def resident_chunk_bytes() -> int:
    gc.collect()
    return sum(each.tokens_T.nbytes for each in gc.get_objects() if type(each) is Chunk)


def test_measure_when_rows_are_large_then_memory_stays_within_the_window_and_one_chunk(
    tmp_path: Path, open_engine: OpenEngine
) -> None:
    path = write_ids(tmp_path / "large.parquet", [2 * MIB] * 12, row_group_size=4)
    engine = open_engine([path], lanes=1, workers=1, window_bytes=16 * MIB)
    answer = engine.measure(0, 0, [[0, 0, 0, 0]], 64)
    assert answer.column("num_tokens").to_pylist()[:-1] == [2 * MIB] * 12
    assert engine.stats()["window_peak_bytes"] <= (16 + 8) * MIB + 4096
    assert resident_chunk_bytes() <= 16 * MIB


def test_measure_when_rows_are_large_then_they_are_materialized_as_they_were(
    tmp_path: Path, open_engine: OpenEngine, plan_of: Any
) -> None:
    path = write_ids(tmp_path / "large.parquet", [2 * MIB] * 6, row_group_size=3)
    engine = open_engine([path], lanes=1, window_bytes=16 * MIB)
    rows = [row for row in engine.measure(0, 0, [[0, 0, 0, 0]], 64).to_pylist() if row["verdict"] == Verdict.OK]
    for step, row in enumerate(rows):
        pieces = engine.materialize([plan_of(step, [row])])
        (tokens,) = pieces.column("tokens").to_numpy(zero_copy_only=False)
        assert not pieces.column("is_masked").to_pylist()[0]
        assert np.array_equal(tokens, np.full(2 * MIB, 3 * row["block"] + row["row"]))


@pytest.mark.parametrize("rows_per_lane", [3, 16])
def test_epoch_when_many_sources_share_a_small_budget_then_each_block_is_read_once(
    tmp_path: Path, open_engine: OpenEngine, rows_per_lane: int
) -> None:
    num_sources, lanes, num_blocks = 40, 2, 6
    files = [
        write_ids(tmp_path / f"s{index:02}.parquet", [20 + index] * 60, row_group_size=10)
        for index in range(num_sources)
    ]
    engine = open_engine(files, lanes=lanes, shuffle_bytes=1 << 16, window_bytes=64 * MIB)
    for epoch in range(2):
        read_epoch(engine, num_sources, lanes, rows_per_lane, epoch)
        assert engine.stats()["blocks_read"] == (epoch + 1) * num_sources * num_blocks
    assert engine.stats()["lanes_read_ahead"] > 0


def read_epoch(engine: LoaderEngine, num_sources: int, lanes: int, rows_per_lane: int, epoch: int) -> None:
    """Measure all sources in turn, a few rows of each lane at a time, as a planner asks for them."""
    cursors = {(source, lane): [lane, 0, 0, 0] for source in range(num_sources) for lane in range(lanes)}
    while cursors:
        for source in range(num_sources):
            mine = [cursor for (of, _), cursor in cursors.items() if of == source]
            for row in engine.measure(source, epoch, mine, rows_per_lane).to_pylist() if mine else []:
                key = (source, row["lane"])
                if row["verdict"] == Verdict.LANE_END:
                    del cursors[key]
                else:
                    cursors[key] = [row["lane"], row["unit_index"], row["block_index"], row["pos"] + 1]
