"""A run of mixed text, images and video at four ranks, with real processes on real files.

What every rank's batches hold is decoded back, text and pictures, and compared with the files themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import loadmaster
from loadmaster.digest import record_digest
from loadmaster_flight.spec import RunSpec, SourceManifest, load_run_spec
from loadmaster_flight.wire.slicing import SlicePlace, zigzag_index
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.freezing import freeze_run
from loadmaster_server.runs.mesh import coords_of
from support.media_runs import ExampleFiles, ReadDocument, media_run, pillow_picture, read_documents

pytestmark = pytest.mark.processes
RANKS = 4
NAMES = ["prose", "pictures", "clips"]
Frozen = tuple[RunSpec, list[SourceManifest]]
Records = list[list[pa.RecordBatch]]
"""By rank, then by step."""


@pytest.fixture
def freeze(tmp_path: Path) -> Callable[..., Frozen]:
    """Spec and manifests of a media run; keyword arguments replace its top-level keys."""

    def make(**changes: Any) -> Frozen:
        path = tmp_path / "media.yaml"
        path.write_text(yaml.safe_dump(media_run(**changes), sort_keys=False))
        spec = load_run_spec(path)
        return spec, freeze_run(spec)

    return make


def fetch(url: str, rank: int) -> list[pa.RecordBatch]:
    with loadmaster.connect(url, rank=rank, world_size=RANKS, framework="numpy") as stream:
        return [batch.record for batch in stream]


def fetch_all(url: str) -> Records:
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(fetch, [url] * RANKS, range(RANKS)))


def assert_as_the_files_say(documents: list[ReadDocument], files: ExampleFiles) -> None:
    """Text and every pixel of every whole document; of cut prose, that it is part of the text."""
    for document in documents:
        text = files.text(document.key)
        if document.key[0] == "prose":
            assert document.text in text
            assert document.pictures == []
        else:
            assert document.text == text
            (frames,) = document.pictures
            assert np.array_equal(frames, files.frames(document.key)), document.key


def test_batches_of_4_ranks_when_decoded_back_then_text_and_pictures_are_those_of_the_files(
    freeze: Callable[..., Frozen], start_cluster: Callable[..., Any]
) -> None:
    cluster = start_cluster(*freeze(), loaders=2, constructors=2)
    records = fetch_all(cluster.url)
    files = ExampleFiles()
    kinds: Counter[str] = Counter()
    for rank in records:
        documents = [document for record in rank for document in read_documents(record, NAMES)]
        assert_as_the_files_say(documents, files)
        kinds.update(document.key[0] for document in documents)
    assert kinds["pictures"] >= 40
    assert kinds["clips"] >= 20
    assert kinds["prose"] >= 20


def test_pictures_when_compared_with_another_library_then_they_look_the_same(freeze: Callable[..., Frozen]) -> None:
    """The bytes in a batch are the picture itself, not only what our own decoder says of it."""
    files = ExampleFiles()
    compared = 0
    with EmbeddedRun(*freeze(until={"steps": 3})) as run:
        for _plan, batches in run:
            for document in read_documents(batches[0], NAMES):
                if document.key[0] == "pictures":
                    picture = document.pictures[0][0].astype(int)
                    other = pillow_picture(files.data(document.key), picture.shape[:2]).astype(int)
                    assert abs(picture - other).mean() < 8, document.key
                    compared += 1
    assert compared >= 15


def test_bytes_when_distributed_then_equal_to_embedded(
    freeze: Callable[..., Frozen], start_cluster: Callable[..., Any]
) -> None:
    spec, manifests = freeze()
    with EmbeddedRun(spec, manifests, dp=RANKS) as run:
        expected = [[record_digest(batches[rank]) for rank in range(RANKS)] for _plan, batches in run]
    cluster = start_cluster(spec, manifests, loaders=3, constructors=2, workers=2)
    records = fetch_all(cluster.url)
    assert [[record_digest(record) for record in step] for step in zip(*records, strict=True)] == expected


def test_union_over_cp_and_pp_when_images_are_inline_then_each_token_once_and_images_on_the_first_stage(
    freeze: Callable[..., Frozen], start_cluster: Callable[..., Any]
) -> None:
    sizes = {"pp": 2, "dp": 1, "cp": 2, "tp": 1}
    spec, manifests = freeze(mesh=sizes)
    with EmbeddedRun(spec, manifests, mesh=sizes) as run:
        whole = [batches[0] for _plan, batches in run]
    cluster = start_cluster(spec, manifests, loaders=2, constructors=1)
    records = fetch_all(cluster.url)
    for rank, got in enumerate(records):
        at = coords_of(sizes, rank)
        for record, reference in zip(got, whole, strict=True):
            has_images = at["pp"] == 0
            assert ("pixel_values" in record.schema.names) == has_images
            for name in ("image_kind", "grid_thw", "image_doc", "image_token_start", "pixel_values"):
                assert not has_images or record.column(name).equals(reference.column(name)), (at, name)
    for step, reference in enumerate(whole):
        for name, stage in (("tokens", 0), ("labels", 1)):
            parts = [records[r][step] for r in range(RANKS) if coords_of(sizes, r)["pp"] == stage]
            assert np.array_equal(joined(parts, name, reference), reference.column(name).to_numpy_ndarray())


def joined(parts: list[pa.RecordBatch], name: str, whole: pa.RecordBatch) -> np.ndarray:
    """A field put together from cp slices; every token must come exactly once."""
    field = whole.column(name).to_numpy_ndarray()
    copy, count = np.zeros_like(field), np.zeros_like(field)
    for part in parts:
        place = SlicePlace.from_metadata(part.schema.metadata)
        for m, ends in enumerate(whole.column("cu_seqlens").to_pylist()):
            index = zigzag_index(np.array(ends), place.cp, place.cp_rank)
            copy[m, index] = part.column(name).to_numpy_ndarray()[m]
            count[m, index] += 1
    assert (count == 1).all()
    return copy
