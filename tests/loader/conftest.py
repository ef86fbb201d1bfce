"""Chunks made of arithmetic, so that every token says where it comes from; and a small real corpus."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadmaster_flight.loader.chunk import Chunk, SpanTable
from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.wire.schemas import Verdict


class ChunkFactory(Protocol):
    def __call__(
        self, start: int, lengths: list[int], *, bad: tuple[int, ...] = ..., spans: list[list[int] | None] | None = ...
    ) -> Chunk: ...


@pytest.fixture
def make_chunk() -> ChunkFactory:
    """Chunks at a position with rows of given lengths: token j of position p is 1000 * p + j, its row is 7 + p."""

    def make(
        start: int, lengths: list[int], *, bad: tuple[int, ...] = (), spans: list[list[int] | None] | None = None
    ) -> Chunk:
        kept = [0 if start + i in bad else n for i, n in enumerate(lengths)]
        tokens = [np.arange(n) + 1000 * (start + i) for i, n in enumerate(kept)]
        verdicts = [Verdict.BAD if start + i in bad else Verdict.OK for i in range(len(lengths))]
        reasons = tuple("broken" if v is Verdict.BAD else None for v in verdicts) if bad else None
        arrays = None if spans is None else [None if s is None else np.array(s, np.int32) for s in spans]
        return Chunk(
            pos=start,
            rows_N=np.arange(start, start + len(lengths)) + 7,
            verdict_N=np.array(verdicts, np.uint8),
            reasons=reasons,
            tokens_T=np.concatenate([np.zeros(0, np.int64), *tokens]).astype(np.int32),
            offsets=np.cumsum([0, *kept]).astype(np.int64),
            spans=SpanTable.from_lists(arrays, len(lengths)),
            row_bytes_N=np.array(kept, np.int64) * 4,
        )

    return make


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Wait for a condition, with a deadline."""

    def wait(condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
        until = time.monotonic() + deadline_s
        while not condition():
            assert time.monotonic() < until, f"{what} did not happen"
            threading.Event().wait(0.005)

    return wait


Frozen = tuple[RunSpec, list[SourceManifest]]

WORDS = ["the", "loader", "reads", "every", "manifest", "and", "balances", "weight", "over", "hold", "before", "flight"]


def _texts(seed: int, num: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 40))) for _ in range(num)]


def _chats(seed: int, num: int) -> list[dict[str, Any]]:
    return [
        {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}]}
        for text in _texts(seed, num)
    ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small sources: Parquet with nulls (3 shards), JSONL with a broken line (1 shard), chats as .jsonl.gz."""
    folder = tmp_path_factory.mktemp("corpus")
    for shard in range(3):
        texts: list[str | None] = [*_texts(shard, 130)]
        texts[17] = None
        pq.write_table(pa.table({"text": texts}), folder / f"prose-{shard}.parquet", row_group_size=50)
    lines = [json.dumps({"doc": {"body": text}}) for text in _texts(7, 200)]
    lines[30] = '{"doc": {"body": "cut off'
    (folder / "code.jsonl").write_text("\n".join(lines) + "\n")
    chats = "\n".join(json.dumps(chat) for chat in _chats(9, 90))
    (folder / "chats.jsonl.gz").write_bytes(gzip.compress(chats.encode()))
    return folder


@pytest.fixture
def make_run(corpus: Path, tokenizer_file: Path) -> Callable[..., Frozen]:
    """A frozen run over the corpus (or a copy of it elsewhere); keyword arguments are budgets."""

    def make(*, folder: Path = corpus, **budgets: int) -> Frozen:
        eos = {"eos": "</s>"}
        sources: dict[str, Any] = {
            "prose": {"uri": str(folder / "prose-*.parquet"), "transform": {"text": "text", **eos}, "lanes": 3},
            "code": {
                "uri": str(folder / "code.jsonl"),
                "transform": {"text": "doc.body", **eos},
                "lanes": 2,
                "block_bytes": 4096,
            },
            "chats": {
                "uri": str(folder / "chats.jsonl.gz"),
                "transform": {"messages": "messages", **eos},
                "lanes": 1,
                "block_bytes": 4096,
            },
        }
        spec = RunSpec.model_validate(
            {
                "run": "small",
                "seed": 5,
                "tokenizer": str(tokenizer_file),
                "sources": sources,
                "mixture": {"weights": {"prose": 0.5, "code": 0.3, "chats": 0.2}},
                "batch": {"seq_len": 64, "microbatches": 4},
                "budgets": budgets,
            }
        )
        manifests = [
            freeze_source(
                name,
                ordinal,
                source,
                base_dir=folder,
                shuffle_bytes=1 << 20,
                fingerprint=build_transform(spec, name).fingerprint,
            )
            for ordinal, (name, source) in enumerate(spec.sources.items())
        ]
        return spec, manifests

    return make


@pytest.fixture
def make_engine(make_run: Callable[..., Frozen]) -> Iterator[Callable[..., LoaderEngine]]:
    """Engines over the corpus, closed at the end of the test."""
    engines: list[LoaderEngine] = []

    def make(*, workers: int = 2, folder: Path | None = None, **budgets: int) -> LoaderEngine:
        spec, manifests = make_run(**({} if folder is None else {"folder": folder}), **budgets)
        engine = LoaderEngine(spec, manifests, cache_dir=None, workers=workers)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()
