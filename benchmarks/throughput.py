"""Documents, tokens and CPU seconds: Loadmaster's processes together against a plain torch DataLoader per rank.

Both read the same Parquet files with the same tokenizer, pack alike and yield flat batches. Each round takes K steps
from the one, then from the other; CPU is counted from quiet to quiet (all buffers full before and after), so the work
for exactly K steps is counted on both sides, whichever process did it. Speed is that of the steps after the first
BUFFERED, so that nobody is praised for what lay ready.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import loadmaster
from loadmaster_flight.spec import load_run_spec
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster

sys.path.insert(0, str(Path(__file__).parent))
from cpu import children_of, when_quiet
from plain_loader import PlainConfig, plain_loader

EXAMPLES = Path(__file__).parents[1] / "examples"
SEQ_LEN, BINS, ALIGN, OVERDRAW = 8192, 8, 16, 0.01
BUFFERED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A mesh to compare on: every rank fetches; tokens count once per dp rank."""

    name: str
    dp: int
    copies: int
    mesh: dict[str, int]

    @property
    def world_size(self) -> int:
        return self.dp * self.copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What K steps took: their wall time, and the CPU seconds of all steps of the round by their tokens."""

    tokens: int
    docs: int
    wall_s: float
    cpu_per_mtok: float


CASES = {
    "one": Case(name="one rank", dp=1, copies=1, mesh={"dp": 1}),
    "dp4": Case(name="dp=4", dp=4, copies=1, mesh={"dp": 4}),
    "pp2dp2tp2": Case(name="pp=2 dp=2 tp=2", dp=2, copies=4, mesh={"pp": 2, "dp": 2, "tp": 2}),
}


def write_corpus(folder: Path, *, num_docs: int) -> list[str]:
    """Parquet shards of documents cut from the demo's real prose, lognormal lengths (mean about 700 tokens)."""
    words = " ".join(_real_texts()).split(" ")
    rng, texts = random.Random(5), []
    for _ in range(num_docs):
        size = max(8, min(20_000, int(rng.lognormvariate(5.6, 1.2))))
        start = rng.randrange(len(words) - size) if size < len(words) else 0
        texts.append(" ".join(words[start : start + size]))
    for shard in range(4):
        pq.write_table(pa.table({"text": texts[shard::4]}), folder / f"part-{shard}.parquet", row_group_size=256)
    return sorted(str(path) for path in folder.glob("*.parquet"))


def _real_texts() -> Iterator[str]:
    for path in sorted((EXAMPLES / "data" / "novel").glob("*.parquet")):
        yield from (row["text"] for row in pq.read_table(path).column("doc").to_pylist())


class Ours:
    """A cluster of real processes, and every rank's stream read by a thread of this process."""

    def __init__(self, folder: Path, files: list[str], case: Case) -> None:
        spec_path = folder / f"{case.dp}x{case.copies}.yaml"
        spec_path.write_text(yaml.safe_dump(_run_spec(files, case)))
        spec = load_run_spec(spec_path)
        self._cluster = LocalCluster(state_dir=folder / f"state-{case.dp}x{case.copies}", size=ClusterSize())
        self._cluster.start()
        self._cluster.create_run(spec, freeze_run(spec))
        with ThreadPoolExecutor(case.world_size) as pool:
            self._streams = list(pool.map(lambda rank: self._connect(rank, case), range(case.world_size)))
        self._case = case
        self.waits_ms: list[float] = []

    def _connect(self, rank: int, case: Case) -> Any:
        return loadmaster.connect(self._cluster.url, rank=rank, world_size=case.world_size)

    def pids(self) -> list[int]:
        return [os.getpid(), *self._cluster.pids().values()]

    def take(self, steps: int) -> tuple[int, int]:
        with ThreadPoolExecutor(self._case.world_size) as pool:
            counts = list(pool.map(lambda stream: self._take(stream, steps), self._streams))
        return _sum(counts, self._case.copies)

    def _take(self, stream: Any, steps: int) -> tuple[int, int]:
        tokens = docs = 0
        for _ in range(steps):
            begin_s = time.perf_counter()
            batch = next(stream)
            self.waits_ms.append((time.perf_counter() - begin_s) * 1e3)
            tokens, docs = tokens + batch.num_tokens, docs + len(batch.sample_ids)
        return tokens, docs

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._cluster.stop()


def _run_spec(files: list[str], case: Case) -> dict[str, Any]:
    source = {"uri": files, "transform": {"text": "text", "eos": "</s>"}}
    return {
        "run": "throughput",
        "tokenizer": str(EXAMPLES / "data" / "tokenizer.json"),
        "sources": {"prose": source},
        "mixture": {"weights": {"prose": 1}},
        "batch": {"seq_len": SEQ_LEN, "microbatches": BINS, "align": ALIGN, "overdraw": OVERDRAW},
        "mesh": case.mesh,
        "budgets": {"plan_ahead": 6, "bind_ahead": 4, "build_ahead": 3, "window_bytes": 16 << 20},
    }


class Plain:
    """A DataLoader with two workers for every rank, all read by this process."""

    def __init__(self, files: list[str], case: Case) -> None:
        self._case = case
        self._iters = [iter(plain_loader(self._config(files, rank, case))) for rank in range(case.world_size)]

    def _config(self, files: list[str], rank: int, case: Case) -> PlainConfig:
        return PlainConfig(
            files=tuple(files),
            tokenizer=str(EXAMPLES / "data" / "tokenizer.json"),
            seq_len=SEQ_LEN,
            bins_per_step=BINS // case.dp,
            align=ALIGN,
            overdraw=OVERDRAW,
            dp_rank=rank % case.dp,
            dp=case.dp,
        )

    def pids(self) -> list[int]:
        return [os.getpid(), *children_of(os.getpid())]

    def take(self, steps: int) -> tuple[int, int]:
        counts = []
        for loader in self._iters:
            batches = [next(loader) for _ in range(steps)]
            counts.append((sum(b["num_tokens"] for b in batches), sum(b["num_docs"] for b in batches)))
        return _sum(counts, self._case.copies)

    def close(self) -> None:
        self._iters.clear()


def _sum(counts: list[tuple[int, int]], copies: int) -> tuple[int, int]:
    return sum(tokens for tokens, _ in counts) // copies, sum(docs for _, docs in counts) // copies


def measure(side: Ours | Plain, pids: Callable[[], list[int]], steps: int) -> Round:
    """Take BUFFERED and then `steps` steps, from quiet to quiet."""
    before_s = when_quiet(pids)
    ready_tokens, _docs = side.take(BUFFERED)
    begin_s = time.perf_counter()
    tokens, docs = side.take(steps)
    wall_s = time.perf_counter() - begin_s
    used_s = when_quiet(pids) - before_s
    return Round(tokens=tokens, docs=docs, wall_s=wall_s, cpu_per_mtok=used_s / (ready_tokens + tokens) * 1e6)


def compare(folder: Path, files: list[str], case: Case, *, rounds: int, steps: int) -> dict[str, Any]:
    """Interleaved rounds of both sides: medians and their ratios."""
    cluster_ours = Ours(folder, files, case)
    plain = Plain(files, case)
    ours_only = [pid for pid in cluster_ours.pids() if pid != os.getpid()]
    workers = [pid for pid in plain.pids() if pid not in (os.getpid(), *ours_only)]
    sides = {
        "loadmaster": (cluster_ours, lambda: [os.getpid(), *ours_only]),
        "dataloader": (plain, lambda: [os.getpid(), *workers]),
    }
    results: dict[str, list[Round]] = {name: [] for name in sides}
    try:
        for side, _pids in sides.values():
            side.take(2)
        cluster_ours.waits_ms.clear()
        for _ in range(rounds):
            for name, (side, pids) in sides.items():
                results[name].append(measure(side, pids, steps))
    finally:
        plain.close()
        cluster_ours.close()
    return _summary(case, results, cluster_ours.waits_ms)


def _summary(case: Case, results: dict[str, list[Round]], waits_ms: list[float]) -> dict[str, Any]:
    def median(name: str, of: Callable[[Round], float]) -> float:
        return statistics.median(of(r) for r in results[name])

    rows = {
        name: {
            "cpu_s_per_mtok": median(name, lambda r: r.cpu_per_mtok),
            "tokens_per_s": median(name, lambda r: r.tokens / r.wall_s),
            "docs_per_s": median(name, lambda r: r.docs / r.wall_s),
        }
        for name in results
    }
    ratio = rows["loadmaster"]["cpu_s_per_mtok"] / rows["dataloader"]["cpu_s_per_mtok"]
    return {"case": case.name, "rows": rows, "cpu_ratio": ratio, "wait_p99_ms": float(np.percentile(waits_ms, 99))}


def _print(summary: dict[str, Any]) -> None:
    print(f"\n{summary['case']}")
    print(f"{'':<12}{'CPU s / 1M tokens':>20}{'tokens / s':>16}{'docs / s':>14}")
    for name, row in summary["rows"].items():
        print(f"{name:<12}{row['cpu_s_per_mtok']:>20.3f}{row['tokens_per_s']:>16,.0f}{row['docs_per_s']:>14,.0f}")
    print(f"CPU of loadmaster / dataloader: {summary['cpu_ratio']:.2f}   wait p99: {summary['wait_p99_ms']:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute on two cores")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    rounds, steps = (3, 6) if args.quick else (7, 24)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write_corpus(folder, num_docs=4000 if args.quick else 12000)
        out = {key: compare(folder, files, case, rounds=rounds, steps=steps) for key, case in CASES.items()}
    for summary in out.values():
        _print(summary)
    if args.json:
        print(json.dumps(_keys(out)))


def _keys(out: dict[str, dict[str, Any]]) -> dict[str, float]:
    return {
        "cpu_per_mtok_over_dataloader": out["one"]["cpu_ratio"],
        "tokens_per_cpu_s_over_dataloader_pp2dp2tp2": 1 / out["pp2dp2tp2"]["cpu_ratio"],
        "tokens_per_cpu_s_over_dataloader_dp4": 1 / out["dp4"]["cpu_ratio"],
        "wait_p99_ms": out["one"]["wait_p99_ms"],
    }


if __name__ == "__main__":
    main()
