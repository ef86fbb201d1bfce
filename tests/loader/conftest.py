"""Chunks made of arithmetic, so that every token says where it comes from; and a small real corpus."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadmaster_flight.loader.chunk import Chunk, SpanTable
from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.transforms import build_transform
from loadmaster_flight.wire.errors import LoadmasterError, NotFoundError, to_problem
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, WHOLE, Pieces, StepPlan, plans_to_bytes

from .media_runs import freeze_media as freeze_media
from .media_runs import media_corpus as media_corpus


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
def own_corpus(corpus: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(corpus, tmp_path / "corpus"))


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


class FakePlanner:
    """A real HTTP server that knows one run, and plans that a test gives it.

    Attributes:
        plans: generation -> step -> whole plan.
        released: What heartbeats are answered with.
        verdicts: What was reported, in order.
        requests: Paths of the GET requests, in order.
    """

    def __init__(self, spec: RunSpec, manifests: list[SourceManifest]) -> None:
        self.definition = {"spec": spec.to_tree(), "manifests": [m.model_dump(mode="json") for m in manifests]}
        self.plans: dict[int, dict[int, StepPlan]] = {}
        self.released: list[dict[str, Any]] = []
        self.leases = [{"run": spec.run, "source": s, "partition": 0, "partitions": 1} for s in range(len(manifests))]
        self.verdicts: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.heartbeats: list[dict[str, Any]] = []
        self.left: list[str] = []
        self.key = bytes(range(32))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def get(self, path: str) -> bytes:
        parts = urlsplit(path)
        self.requests.append(path)
        if parts.path == f"/api/v1/runs/{self.definition['spec']['run']}/definition":
            return json.dumps(self.definition).encode()
        if not parts.path.endswith("/plans"):
            raise NotFoundError(f"nothing at {parts.path}")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        triples = [tuple(map(int, item.split(":"))) for item in query["partitions"].split(",")]
        known = self.plans.get(int(parts.path.split("/")[-2]), {})
        steps = range(int(query["first"]), int(query["last"]))
        return plans_to_bytes([known[step].of_partitions(triples) for step in steps if step in known])

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/api/v1/actors":
            beat = {"heartbeat_s": 0.02, "lease_s": 30.0}
            return {"actor_id": "loader-1", "ticket_key_hex": self.key.hex(), **beat}
        if path.endswith("/heartbeat"):
            self.heartbeats.append(body)
            return {"leases": [] if body.get("is_leaving") else self.leases, "released": self.released}
        if path.endswith("/verdicts"):
            self.verdicts.append(body)
            return {}
        raise NotFoundError(f"nothing at {path}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        planner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30.0

            def do_GET(self) -> None:
                self.answer(lambda: planner.get(self.path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self.answer(lambda: json.dumps(planner.post(self.path, body)).encode())

            def do_DELETE(self) -> None:
                planner.left.append(self.path)
                self.answer(lambda: b"{}")

            def answer(self, call: Callable[[], bytes]) -> None:
                try:
                    status, data = 200, call()
                except LoadmasterError as error:
                    status, data = error.http_status, json.dumps(to_problem(error)).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture
def make_planner() -> Iterator[Callable[[Frozen], FakePlanner]]:
    """Fake planners, closed at the end of the test."""
    planners: list[FakePlanner] = []

    def make(frozen: Frozen) -> FakePlanner:
        planners.append(FakePlanner(*frozen))
        return planners[-1]

    yield make
    for planner in planners:
        planner.close()


class PlanFactory(Protocol):
    def __call__(
        self, step: int, rows: list[dict[str, Any]], cuts: list[tuple[int, int]] | None = ..., *, dp: int = ...
    ) -> StepPlan: ...


@pytest.fixture
def plan_of() -> PlanFactory:
    """Plans whose pieces are metadata rows, whole or cut to (first_token, num_tokens), dealt to 4 bins in turn."""

    def make(
        step: int, rows: list[dict[str, Any]], cuts: list[tuple[int, int]] | None = None, *, dp: int = 1
    ) -> StepPlan:
        rows = sorted(rows, key=lambda r: (r["source"], r["epoch"], r["shard"], r["block"], r["pos"]))
        columns = {name: np.array([r.get(name, 0) for r in rows], np.int64) for name in PIECE_COLUMNS}
        columns["first_token"] = np.array([first for first, _ in cuts] if cuts else [0] * len(rows), np.int64)
        columns["num_tokens"] = np.array([num for _, num in cuts] if cuts else [WHOLE] * len(rows), np.int64)
        columns["bin"] = np.arange(len(rows)) % 4
        return StepPlan(
            step=step,
            num_bins=4,
            seq_len=64,
            dp=dp,
            num_tokens=0,
            global_valid_tokens=0,
            weights_S=np.zeros(3, np.int64),
            source_tokens_S=np.zeros(3, np.int64),
            pieces=Pieces(**columns),
        ).with_digest()

    return make
