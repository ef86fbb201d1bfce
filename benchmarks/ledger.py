"""What the ledger costs: bytes that it adds to a plan's summary, and `verify` over a long log.

A log of many steps is planned over made-up metadata and written as the plan loop writes it, with a checkpoint every 8
steps, and then verified. `rss_growth_mb` is what the process grew by between a tenth of the pass and its end.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from loadmaster_flight.wire.step_plan import StepPlan, plans_to_bytes
from loadmaster_server.ledger.naming import SampleNames
from loadmaster_server.ledger.verifying import Verification
from loadmaster_server.planning import NeedMetadata, StreamPlanner
from loadmaster_server.store import GenerationKey, PlanRecord, Store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from metadata_source import MetadataSource, lognormal
from planning_step import Case, open_generation

CHECKPOINT_STEPS = 8
CASES = {
    "5": Case(name="5 sources", context=8192, lengths=lognormal(1440), ranks=4, per_rank=4, sources=5, lanes=4),
    "300": Case(name="300 sources", context=8192, lengths=lognormal(1440), ranks=8, per_rank=8, sources=300, lanes=2),
}


def plan_steps(planner: StreamPlanner, sources: list[MetadataSource], num_steps: int) -> Iterator[StepPlan]:
    """The first steps, fed as asked for."""
    while planner.step < num_steps:
        try:
            yield planner.plan_next()
        except NeedMetadata as need:
            for demand in need.demands:
                planner.feed(sources[demand.source].answer(demand))


def write_log(store: Store, case: Case, num_steps: int) -> dict[str, float]:
    """Plan and commit; returns bytes a step."""
    spec = case.spec()
    key: GenerationKey = open_generation(store, spec, case)
    sources = [MetadataSource(i, case.lengths, case.lanes) for i in range(case.sources)]
    planner = StreamPlanner(spec, "train", [case.lanes] * case.sources, {"dp": case.ranks})
    body, origins, pieces = 0, 0, 0
    for plan in plan_steps(planner, sources, num_steps):
        state, kept = planner.state(), planner.origins()
        summary = {"total_tokens": list(state.placed_tokens_S), "graph": planner.aggregate(), "origins": kept}
        record = PlanRecord(
            step=plan.step, digest=plan.digest, revision=0, is_final=False, body=plans_to_bytes([plan]), summary=summary
        )
        is_base = planner.step % CHECKPOINT_STEPS == 0
        store.plans.commit(key, record, checkpoint=state.to_bytes() if is_base else None)
        body, origins, pieces = body + len(record.body), origins + len(json.dumps(kept)), pieces + len(plan.pieces)
    store.generations.bind(key, num_steps)
    store.generations.acknowledge(key, num_steps)
    return {"body": body / num_steps, "origins": origins / num_steps, "pieces": pieces / num_steps}


def verify(store: Store, run: str, key: GenerationKey, num_steps: int) -> dict[str, float]:
    """One pass: seconds of CPU and on the clock, faults, growth."""
    start, cpu, early = time.perf_counter(), time.process_time(), 0.0
    faults, closed_at = -1, 0
    for report in Verification(store, key.stream_key, None, SampleNames(store, run)).run():
        if not early and report.read_to >= num_steps // 10:
            early = _rss_mb()
        faults, closed_at = report.num_faults, report.closed_at
    figures = {"verify_cpu_s": time.process_time() - cpu, "verify_wall_s": time.perf_counter() - start}
    return figures | {"faults": faults, "closed_at": closed_at, "rss_growth_mb": _rss_mb() - (early or _rss_mb())}


def _rss_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--only", choices=CASES, nargs="+", default=list(CASES), help="these cases only")
    args = parser.parse_args()
    steps, out = {"5": 10_000, "300": 1_000}, dict[str, float]()
    columns = {"steps": 8, "pieces": 9, "body B": 9, "kept B": 9, "CPU s": 9, "wall s": 9, "faults": 8, "grew MB": 9}
    print(" " * 14 + "".join(f"{column:>{width}}" for column, width in columns.items()))
    for name in args.only:
        case, num_steps = CASES[name], steps[name] // (10 if args.quick else 1)
        with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/planner.db") as store:
            row = write_log(store, case, num_steps)
            key = store.generations.current()[0].key
            row |= verify(store, key.run, key, num_steps)
        print(
            f"{case.name:14}{num_steps:8,}{row['pieces']:9,.0f}{row['body']:9,.0f}{row['origins']:9,.0f}"
            f"{row['verify_cpu_s']:9.1f}{row['verify_wall_s']:9.1f}{row['faults']:8.0f}{row['rss_growth_mb']:9.1f}"
        )
        out |= {f"{key}_{name}": value for key, value in row.items()}
    if args.json:
        print(json.dumps(out))


if __name__ == "__main__":
    main()
