"""Runs over small real files of every format, and whole clusters of real processes."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from loadmaster_flight.spec import RunSpec, SourceManifest, load_run_spec
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster

WORDS = [
    "the",
    "loader",
    "reads",
    "every",
    "manifest",
    "and",
    "balances",
    "weight",
    "over",
    "hold",
    "before",
    "flight",
    "with",
    "cargo",
    "signed",
    "at",
    "dawn",
]


def _texts(seed: int, num_docs: int, mean_words: int) -> list[str]:
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(WORDS) for _ in range(max(1, int(rng.lognormvariate(0, 0.9) * mean_words))))
        for _ in range(num_docs)
    ]


def write_parquet(folder: Path, texts: list[str], *, shards: int, rows_per_group: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        table = pa.table({"text": texts[shard::shards]})
        pq.write_table(table, folder / f"part-{shard:03}.parquet", row_group_size=rows_per_group)


def write_jsonl(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"body": {"text": text}}) + "\n" for text in texts).encode()
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


def write_tar(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for i, text in enumerate(texts):
            info = tarfile.TarInfo(f"{i:06}.txt")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four sources: parquet, jsonl, gz and tar; the last two are smaller than an epoch of a test run."""
    folder = tmp_path_factory.mktemp("corpus")
    write_parquet(folder / "prose", _texts(1, 900, 40), shards=3, rows_per_group=64)
    write_jsonl(folder / "code" / "all.jsonl", _texts(2, 600, 30))
    write_jsonl(folder / "zipped" / "a.jsonl.gz", _texts(3, 150, 50))
    write_jsonl(folder / "zipped" / "b.jsonl.gz", _texts(4, 120, 50))
    write_tar(folder / "tarred" / "a.tar", _texts(5, 80, 120))
    return folder


MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(corpus: Path, tokenizer_file: Path, tmp_path: Path) -> MakeRun:
    """Writes a run spec over the corpus; keyword arguments replace its top-level keys."""

    def make(**changes: Any) -> Path:
        text = {"text": "text"}
        body = {"text": "body.text"}
        spec: dict[str, Any] = {
            "run": "small",
            "seed": 11,
            "tokenizer": str(tokenizer_file),
            "sources": {
                "prose": {"uri": str(corpus / "prose" / "*.parquet"), "transform": text},
                "code": {"uri": str(corpus / "code" / "all.jsonl"), "transform": body, "block_bytes": 16384},
                "zipped": {"uri": str(corpus / "zipped" / "*.gz"), "transform": body, "block_bytes": 16384},
                "tarred": {"uri": str(corpus / "tarred" / "a.tar"), "transform": {"text": "txt"}},
            },
            "mixture": {"weights": {"prose": 0.5, "code": 0.3, "zipped": 0.15, "tarred": 0.05}},
            "batch": {"seq_len": 256, "microbatches": 8, "align": 16},
            "until": {"steps": 100},
        }
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump({**spec, **changes}, sort_keys=False))
        return path

    return make


Frozen = tuple[RunSpec, list[SourceManifest]]


@pytest.fixture
def frozen(make_run: MakeRun) -> Callable[..., Frozen]:
    """A run's spec and manifests."""

    def make(**changes: Any) -> Frozen:
        spec = load_run_spec(make_run(**changes))
        return spec, freeze_run(spec)

    return make


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[Callable[..., LocalCluster]]:
    """Starts clusters of real processes and stops them at the end of the test."""
    clusters: list[LocalCluster] = []

    def start(
        spec: RunSpec, manifests: list[SourceManifest], *, state_dir: Path | None = None, **size: int
    ) -> LocalCluster:
        folder = state_dir or tmp_path / f"state-{len(clusters)}"
        cluster = LocalCluster(state_dir=folder, size=ClusterSize(**size))
        clusters.append(cluster)
        cluster.start()
        cluster.create_run(spec, manifests)
        return cluster

    yield start
    for cluster in clusters:
        cluster.stop()
