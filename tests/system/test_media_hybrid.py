"""Encoder over the whole world, backbone over dp: every unit of every picture is encoded once, by the rank of the plan.

Real processes on real files. The pictures of a dp rank's microbatch are put together again from what all ranks encode
for it, and compared with the files.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import yaml

import loadmaster
from loadmaster.digest import record_digest
from loadmaster_flight.spec import RunSpec, SourceManifest, load_run_spec
from loadmaster_flight.wire.schemas import NO_DP
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.freezing import freeze_run
from loadmaster_server.runs.mesh import coords_of
from support.media_runs import ExampleFiles, media_run, pictures_of, rows_of

pytestmark = pytest.mark.processes
RANKS, STEPS = 4, 5
NAMES = ["prose", "pictures", "clips"]
MESHES = [
    {"pp": 1, "dp": 4, "cp": 1, "tp": 1},
    {"pp": 2, "dp": 2, "cp": 1, "tp": 1},
    {"pp": 1, "dp": 2, "cp": 2, "tp": 1},
]
Sizes = dict[str, int]
Records = list[list[pa.RecordBatch]]
"""By rank, then by step."""


def frozen(folder: Path, sizes: Sizes) -> tuple[RunSpec, list[SourceManifest]]:
    spec = media_run(strategy="vlm_hybrid", mesh=sizes, until={"steps": STEPS})
    (folder / "hybrid.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    loaded = load_run_spec(folder / "hybrid.yaml")
    return loaded, freeze_run(loaded)


def fetch(url: str, rank: int) -> list[pa.RecordBatch]:
    with loadmaster.connect(url, rank=rank, world_size=RANKS, framework="numpy") as stream:
        return [batch.record for batch in stream]


@pytest.mark.parametrize("sizes", MESHES, ids=lambda sizes: "-".join(f"{k}{v}" for k, v in sizes.items()))
def test_hybrid_when_all_ranks_read_then_each_unit_is_encoded_once_and_pictures_are_those_of_the_files(
    sizes: Sizes, tmp_path: Path, start_cluster: Callable[..., Any]
) -> None:
    spec, manifests = frozen(tmp_path, sizes)
    with EmbeddedRun(spec, manifests, mesh=sizes) as run:
        expected = []
        while (plan := run.plan_next()) is not None:
            built = run.build_ranks(plan, range(RANKS))
            expected.append([record_digest(built[rank]) for rank in range(RANKS)])
    cluster = start_cluster(spec, manifests, loaders=2, constructors=2)
    with ThreadPoolExecutor(RANKS) as pool:
        records: Records = list(pool.map(fetch, [cluster.url] * RANKS, range(RANKS)))
    assert [[record_digest(record) for record in step] for step in zip(*records, strict=True)] == expected
    files, seen, busy = ExampleFiles(), 0, set()
    for step in range(STEPS):
        of_step = [records[rank][step] for rank in range(RANKS)]
        for m in range(of_step[0].num_rows):
            encoded = encoded_in(of_step, m)
            busy |= {rank for rank, units in encoded.items() if any(units.values())}
            seen += check_microbatches(of_step, m, sizes, encoded, files)
    assert seen >= 40
    assert busy == set(range(RANKS))


Encoded = dict[int, dict[int, deque[tuple[list[int], npt.NDArray[np.uint8]]]]]
"""Encoder rank -> dp rank that gets the embeddings -> grid and patches of each unit, in order."""


def encoded_in(records: list[pa.RecordBatch], m: int) -> Encoded:
    """What each rank encodes of microbatch m of all dp ranks; no rank goes without."""
    found: Encoded = {}
    for rank, record in enumerate(records):
        patches_PD, at = rows_of(record, "pixel_values", m), 0
        found[rank] = defaultdict(deque)
        grids, owners = (rows_of(record, name, m).tolist() for name in ("encoder_grid_thw", "encoder_dp"))
        assert grids
        assert owners == sorted(owners)
        for grid, owner in zip(grids, owners, strict=True):
            size = int(np.prod(grid))
            if owner != NO_DP:
                found[rank][owner].append((grid, patches_PD[at : at + size]))
            at += size
        assert at == len(patches_PD)
    return found


def check_microbatches(
    records: list[pa.RecordBatch], m: int, sizes: Sizes, encoded: Encoded, files: ExampleFiles
) -> int:
    """Put every dp rank's pictures together again; the number of them."""
    num_pictures = 0
    for dp in range(sizes["dp"]):
        own = [r for r in range(RANKS) if coords_of(sizes, r)["dp"] == dp and coords_of(sizes, r)["pp"] == 0]
        record = records[own[0]]
        for other in own[1:]:
            for name in ("image_kind", "grid_thw", "image_doc", "image_token_start", "unit_rank"):
                assert records[other].column(name)[m] == record.column(name)[m]
        units = [encoded[int(rank)][dp].popleft() for rank in rows_of(record, "unit_rank", m)]
        assert sum(len(queue) for of_rank in encoded.values() for to, queue in of_rank.items() if to == dp) == 0
        patches_PD = np.concatenate([np.zeros((0, 1176), np.uint8), *(patches for _, patches in units)])
        for key, frames in pictures_of(record, NAMES, m, patches_PD):
            assert np.array_equal(frames, files.frames(key)), key
            num_pictures += 1
    return num_pictures
