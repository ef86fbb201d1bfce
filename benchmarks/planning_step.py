"""The planner's whole step, phase by phase, and the bytes it writes.

gather: Arrow batches of metadata, as loaders send them, into the feeds' buffers. draw: by credit. pack: best fit, and
the canonical order. check: conservation. balance: graph, strategy, and its summary. digest, encode: the plan's compact
form. commit: one transaction of the real store. Metadata is made up and costs nothing here. Times are CPU time of the
one thread, means over the steps of a warm run; `wall` is the best step on the clock, waits for the disk included.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadmaster_flight.spec import RunSpec, SourceManifest
from loadmaster_flight.wire.step_plan import StepPlan, plans_from_bytes, plans_to_bytes
from loadmaster_server.planning import NeedMetadata, StreamPlanner, membership, planner
from loadmaster_server.planning.placement import Placer
from loadmaster_server.store import Definition, GenerationKey, NewGeneration, PlanRecord, Store, StreamKey

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from metadata_source import Lengths, MetadataSource, lognormal

from support.temporary_postgres import temporary_postgres, why_not

PHASES = ("gather", "draw", "pack", "check", "balance", "digest", "encode", "commit", "rest")
WARM_UP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run to plan: D ranks, M microbatches of C tokens each."""

    name: str
    context: int
    lengths: Lengths
    ranks: int = 512
    per_rank: int = 8
    sources: int = 4
    lanes: int = 16

    def spec(self) -> RunSpec:
        names = [f"s{i}" for i in range(self.sources)]
        tree = {
            "run": "bench",
            "sources": {name: {"uri": f"{name}.jsonl", "transform": {"text": "text"}} for name in names},
            "mixture": {"weights": {name: 1 / (1 + i) for i, name in enumerate(names)}},
            "batch": {"seq_len": self.context, "microbatches": self.ranks * self.per_rank},
        }
        return RunSpec.model_validate(tree)


CASES = {
    "small": Case(name="177 samples", context=32_768, lengths=lognormal(1440), ranks=8, per_rank=1),
    "300": Case(name="300 sources", context=32_768, lengths=lognormal(1440), ranks=8, per_rank=1, sources=300, lanes=2),
    "8k": Case(name="D=512 M=8 C=8k", context=8192, lengths=lognormal(1440)),
    "32k": Case(name="D=512 M=8 C=32k", context=32_768, lengths=lognormal(1440)),
    "128k": Case(name="D=512 M=8 C=128k", context=131_072, lengths=lognormal(537)),
}
HEADLINE = "32k"


class Stopwatch:
    """CPU seconds of this thread by phase. Phases are timed where the planner's own modules call them."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside to `name`."""
        start = time.thread_time()
        try:
            yield
        finally:
            self.spent[name] += time.thread_time() - start

    def watch(self, owner: Any, attribute: str, phase: str) -> None:
        """Replace a function by itself, timed."""
        function = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.phase(phase):
                return function(*args, **kwargs)

        setattr(owner, attribute, timed)


def watched() -> Stopwatch:
    """A stopwatch on the planner's phases."""
    watch = Stopwatch()
    for name, phase in (("draw", "draw"), ("pack", "pack"), ("_placed", "pack"), ("check_step", "check")):
        watch.watch(membership, name, phase)
    for name in ("graph", "place"):
        watch.watch(Placer, name, "balance")
    watch.watch(planner, "aggregate", "balance")
    watch.watch(StreamPlanner, "_merge", "gather")
    watch.watch(StepPlan, "with_digest", "digest")
    return watch


class Bench:
    """One planner with its sources and a store."""

    def __init__(self, case: Case, url: str, watch: Stopwatch) -> None:
        spec = case.spec()
        self._sources = [MetadataSource(i, case.lengths, case.lanes) for i in range(case.sources)]
        self._planner = StreamPlanner(spec, "train", [case.lanes] * case.sources, {"dp": case.ranks})
        self._watch, self.store = watch, Store(url)
        self._key = open_generation(self.store, spec, case)

    def step(self) -> dict[str, float]:
        """Plan, encode and commit one step: milliseconds by phase, bytes, samples."""
        before, wall, made = dict(self._watch.spent), time.perf_counter(), 0.0
        start = time.thread_time()
        while True:
            try:
                plan = self._planner.plan_next()
                break
            except NeedMetadata as need:
                for demand in need.demands:
                    at, on_clock = time.thread_time(), time.perf_counter()
                    batch = self._sources[demand.source].answer(demand)
                    start += time.thread_time() - at
                    wall += time.perf_counter() - on_clock
                    made += 1
                    with self._watch.phase("gather"):
                        self._planner.feed(batch)
        with self._watch.phase("encode"):
            record = self._record(plan)
        with self._watch.phase("commit"):
            self.store.plans.commit(self._key, record, checkpoint=None, verdicts=[])
        total = time.thread_time() - start
        figures = {name: self._watch.spent[name] - before.get(name, 0.0) for name in PHASES[:-1]}
        figures |= {"rest": total - sum(figures.values()), "total": total, "wall": time.perf_counter() - wall}
        figures = {name: 1e3 * value for name, value in figures.items()}
        figures |= {"decode": _decode_ms(record.body), "samples": len(plan.pieces), "body": len(record.body)}
        return figures | {"summary": len(json.dumps(record.summary)), "trips": made}

    def _record(self, plan: StepPlan) -> PlanRecord:
        """What the plan loop writes."""
        summary = {
            "num_tokens": plan.num_tokens,
            "num_pieces": len(plan.pieces),
            "source_tokens": plan.source_tokens_S.tolist(),
            "total_tokens": list(self._planner.state().placed_tokens_S),
            "weights": plan.weights_S.tolist(),
            "graph": self._planner.aggregate(),
            "origins": self._planner.origins(),
        }
        return PlanRecord(
            step=plan.step, digest=plan.digest, revision=0, is_final=False, body=plans_to_bytes([plan]), summary=summary
        )

    def checkpoint(self) -> tuple[float, int]:
        """Milliseconds and bytes of a base checkpoint, written every few steps."""
        start = time.thread_time()
        data = self._planner.state().to_bytes()
        return 1e3 * (time.thread_time() - start), len(data)


def _decode_ms(body: bytes) -> float:
    start = time.thread_time()
    plans_from_bytes(body)
    return 1e3 * (time.thread_time() - start)


def open_generation(store: Store, spec: RunSpec, case: Case) -> GenerationKey:
    shard = {"uri": "a", "size_bytes": 1, "etag": "e", "num_rows": 1}
    fixed = {"format": "jsonl", "lanes": case.lanes, "unit_kind": "shard", "block_bytes": 4096, "fingerprint": "f"}
    manifests = [
        SourceManifest.model_validate(fixed | {"name": name, "ordinal": i, "shards": [shard] * case.lanes})
        for i, name in enumerate(spec.source_names)
    ]
    store.runs.create(Definition(spec=spec, manifests=tuple(manifests)))
    mesh = {"pp": 1, "dp": case.ranks, "cp": 1, "tp": 1}
    stream = StreamKey(run=spec.run, stream="train")
    new = NewGeneration(parent=-1, first_step=0, mesh=mesh, nonces=[str(rank) for rank in range(case.ranks)])
    return store.generations.open(stream, new).key


def means(rows: list[dict[str, float]]) -> dict[str, float]:
    """Of every figure (metadata comes every few steps, so a median would not see it); of `wall` the least."""
    found = {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}
    return found | {"wall": min(row["wall"] for row in rows)}


def run_case(case: Case, url: str, watch: Stopwatch, num_steps: int) -> dict[str, float]:
    """Figures of the steps after the warm-up."""
    bench = Bench(case, url, watch)
    with bench.store:
        rows = [bench.step() for _ in range(WARM_UP + num_steps)][WARM_UP:]
        checkpoint_ms, checkpoint_bytes = bench.checkpoint()
    return means(rows) | {"checkpoint": checkpoint_ms, "checkpoint_bytes": checkpoint_bytes}


def print_rows(title: str, rows: dict[str, dict[str, float]]) -> None:
    """One line a case."""
    columns = ("total", "wall", *PHASES, "decode", "checkpoint")
    print(f"\n{title}: milliseconds a step")
    print(f"{'':18}{'samples':>9}" + "".join(f"{name:>11}" for name in columns))
    for name, row in rows.items():
        print(f"{CASES[name].name:18}{row['samples']:9,.0f}" + "".join(f"{row[column]:11.2f}" for column in columns))


def print_bytes(rows: dict[str, dict[str, float]]) -> None:
    """What a step writes, and what a base checkpoint does."""
    print(f"\n{'bytes written':18}{'body':>11}{'a sample':>10}{'summary':>10}{'checkpoint':>12}")
    for name, row in rows.items():
        per_sample = row["body"] / row["samples"]
        print(
            f"{CASES[name].name:18}{row['body']:11,.0f}{per_sample:10.2f}{row['summary']:10,.0f}"
            f"{row['checkpoint_bytes']:12,.0f}"
        )


def run_cases(names: list[str], num_steps: int) -> dict[str, dict[str, dict[str, float]]]:
    """Every case on SQLite and, right after it, on PostgreSQL: database -> case -> figures."""
    watch, reason = watched(), why_not()
    rows: dict[str, dict[str, dict[str, float]]] = {"SQLite": {}, "PostgreSQL": {}}
    if reason is not None:
        print(f"PostgreSQL: skipped, {reason}")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster = stack.enter_context(temporary_postgres()) if reason is None else None
        for name in names:
            rows["SQLite"][name] = run_case(CASES[name], f"sqlite:///{folder}/{name}.db", watch, num_steps)
            if cluster is not None:
                rows["PostgreSQL"][name] = run_case(CASES[name], cluster.new_database(), watch, num_steps)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without a million samples, fewer steps")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--only", choices=CASES, nargs="+", help="these cases only")
    args = parser.parse_args()
    names = args.only or [name for name in CASES if not args.quick or name != "128k"]
    rows, out = run_cases(names, 5 if args.quick else 15), dict[str, float]()
    for database, of_case in rows.items():
        if of_case:
            print_rows(database, of_case)
    print_bytes(rows["SQLite"])
    for name, row in rows["SQLite"].items():
        label = "d512" if name == HEADLINE else name
        out |= {f"step_total_ms_{label}": row["total"], f"step_wall_ms_{label}": row["wall"]}
        out |= {f"bytes_per_sample_{label}": row["body"] / row["samples"], f"summary_bytes_{label}": row["summary"]}
        out |= {f"step_without_balance_ms_{label}": row["total"] - row["balance"]}
        if other := rows["PostgreSQL"].get(name):
            out[f"step_total_ms_{label}_postgres"] = other["total"]
    if args.json:
        print(json.dumps({name: round(value, 3) for name, value in out.items()}))


if __name__ == "__main__":
    main()
