"""A whole mesh of real processes and ranks: together they have every microbatch of the embedded run exactly once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import loadmaster
from loadmaster_flight.constructor.slices import cut
from loadmaster_flight.spec import MeshSpec
from loadmaster_flight.wire.slicing import SlicePlace, zigzag_index
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.runs.mesh import coords_of

STEPS = 6
SIZES = {"pp": 2, "dp": 2, "cp": 2, "tp": 2}
RANKS = 16
Records = list[list[pa.RecordBatch]]
"""By rank, then by step."""


@pytest.fixture
def run(make_run: Callable[..., Path]) -> Path:
    return make_run(mesh=SIZES, until={"steps": STEPS})


@pytest.fixture
def reference(frozen: Callable[..., Any]) -> list[dict[int, pa.RecordBatch]]:
    """The whole microbatches of each step, by dp rank."""
    spec, manifests = frozen(mesh=SIZES, until={"steps": STEPS})
    with EmbeddedRun(spec, manifests, mesh=SIZES) as embedded:
        return [batches for _plan, batches in embedded]


def records_of(target: str, rank: int, world_size: int = RANKS) -> list[pa.RecordBatch]:
    with loadmaster.connect(target, rank=rank, world_size=world_size, framework="numpy") as stream:
        return [batch.record for batch in stream]


@pytest.mark.processes
def test_mesh_of_16_when_all_ranks_read_then_the_union_is_the_microbatch_exactly_once(
    frozen: Callable[..., Any],
    start_cluster: Callable[..., Any],
    reference: list[dict[int, pa.RecordBatch]],
) -> None:
    cluster = start_cluster(*frozen(mesh=SIZES, until={"steps": STEPS}), loaders=2, constructors=2)
    with ThreadPoolExecutor(RANKS) as pool:
        records: Records = list(pool.map(records_of, [cluster.url] * RANKS, range(RANKS)))
    for rank, got in enumerate(records):
        at = coords_of(SIZES, rank)
        wanted = [cut(batches[at["dp"]], SlicePlace.of(SIZES, at), MeshSpec()) for batches in reference]
        assert got == wanted, at
        assert {SlicePlace.from_metadata(r.schema.metadata) for r in got} == {SlicePlace.of(SIZES, at)}
    for step, batches in enumerate(reference):
        for dp, name in itertools.product(range(SIZES["dp"]), ("tokens", "labels")):
            assert_whole(batches[dp], name, [records[rank][step] for rank in ranks_with(dp=dp, tp=0)])


def ranks_with(**coords: int) -> list[int]:
    return [rank for rank in range(RANKS) if coords.items() <= coords_of(SIZES, rank).items()]


def assert_whole(whole: pa.RecordBatch, name: str, parts: list[pa.RecordBatch]) -> None:
    """Each token of a field comes with exactly one part, and is where it was."""
    field = whole.column(name).to_numpy_ndarray()
    count, copy = np.zeros_like(field), np.zeros_like(field)
    for part in (p for p in parts if name in p.schema.names):
        place = SlicePlace.from_metadata(part.schema.metadata)
        for m, ends in enumerate(whole.column("cu_seqlens").to_pylist()):
            index = zigzag_index(np.array(ends), place.cp, place.cp_rank)
            count[m, index] += 1
            copy[m, index] = part.column(name).to_numpy_ndarray()[m]
    assert (count == 1).all()
    assert (copy == field).all()


@pytest.mark.parametrize("rank", [0, 3, 14])
def test_embedded_rank_when_cut_then_byte_equal_to_the_slice_of_the_whole(
    run: Path,
    reference: list[dict[int, pa.RecordBatch]],
    rank: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    at = coords_of(SIZES, rank)
    wanted = [cut(batches[at["dp"]], SlicePlace.of(SIZES, at), MeshSpec()) for batches in reference]
    assert records_of(str(run), rank) == wanted


@pytest.mark.processes
def test_mesh_when_tp_mode_is_broadcast_then_the_run_goes_on_without_the_other_tp_ranks(
    frozen: Callable[..., Any], start_cluster: Callable[..., Any]
) -> None:
    """More steps than the horizons hold: what the ranks that do not fetch have not acknowledged must not stop it."""
    budgets = {"plan_ahead": 4, "bind_ahead": 2, "build_ahead": 2}
    mesh = {"dp": 1, "tp": 2, "tp_mode": "broadcast"}
    spec, manifests = frozen(mesh=mesh, until={"steps": 30}, budgets=budgets)
    cluster = start_cluster(spec, manifests)
    with loadmaster.connect(cluster.url, rank=1, world_size=2, framework="numpy") as other:
        other.start()
        assert len(records_of(cluster.url, 0, world_size=2)) == 30
        assert other.coords["tp"] == 1
