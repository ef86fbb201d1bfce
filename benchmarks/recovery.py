"""What a lost process costs a trainer, and what going on costs: a real cluster, and a trainer that takes 0.5 s a step.

Horizons and leases are the defaults. In each case one process is killed (or stopped) before a step; `stall` is what
the trainer waited for the steps from then on, in steps. Then it strikes a trainer that takes no time for a step, so
that what lies ready does not help: `next batch` is its longest wait. The samples that arrived are compared with those
of a run in one process: lost, repeated. Then a run of 15,000 steps is
read, and its ranks go on there: with all services warm, with all of them started anew, and halfway back. Beside it, in
environments of their own (--mosaic PYTHON, --litdata PYTHON), what others take after as many batches.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import loadmaster
from loadmaster.cli.actors import list_actors
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.control import ActorView, Role, from_json
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.ledger import VerifyReport
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.ranks import ids_of

PEERS = Path(__file__).parent / "peers"
STEP_S = 0.5
SUPERVISE_S = 0.5
READY_S = 20.0
FLAT_OUT = 80
SOURCES = ("web", "code", "books")
BATCH_SAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Whom it strikes. `shadows` of each source; `stop_s`: stopped for so long, not killed."""

    name: str
    role: str
    shadows: int = 0
    stop_s: float = 0.0
    key: str = ""
    in_quick: bool = True


CASES = [
    Case(name="loader killed, shadow", role="loader", shadows=1, key="shadow"),
    Case(name="loader killed, no shadow", role="loader", key="loader"),
    Case(name="constructor killed", role="constructor", key="constructor"),
    Case(name="planner killed", role="planner", key="planner"),
    Case(name="loader stopped 8 s, shadow", role="loader", shadows=1, stop_s=8, in_quick=False),
    Case(name="loader stopped 8 s, no shadow", role="loader", stop_s=8, in_quick=False),
    Case(name="constructor stopped 8 s", role="constructor", stop_s=8, in_quick=False),
    Case(name="planner stopped 6 s", role="planner", stop_s=6, in_quick=False),
]


def write_sources(folder: Path, *, num_docs: int) -> None:
    """Parquet shards of made-up token ids, about 100 each."""
    for ordinal, name in enumerate(SOURCES):
        rng = random.Random(ordinal)
        docs = [
            [rng.randrange(1000) for _ in range(max(2, int(rng.lognormvariate(4.4, 0.6))))] for _ in range(num_docs)
        ]
        (folder / name).mkdir()
        for shard in range(4):
            pq.write_table(pa.table({"ids": docs[shard::4]}), folder / name / f"{shard}.parquet", row_group_size=256)


def spec_of(folder: Path, name: str, steps: int, shadows: int) -> RunSpec:
    """Three sources, steps of 1,024 tokens."""
    return RunSpec.model_validate(
        {
            "run": name,
            "vocab_size": 1000,
            "sources": {
                s: {"uri": str(folder / s / "*.parquet"), "transform": {"tokens": "ids"}, "shadows": shadows}
                for s in SOURCES
            },
            "mixture": {"weights": {"web": 0.6, "code": 0.3, "books": 0.1}},
            "batch": {"seq_len": 512, "microbatches": 2, "align": 16},
            "until": {"steps": steps},
        }
    )


@contextmanager
def cluster_of(folder: Path, size: ClusterSize) -> Iterator[LocalCluster]:
    """A cluster, supervised as `loadmaster up` does it."""
    stop = threading.Event()
    with LocalCluster(state_dir=folder, size=size) as cluster:

        def supervise() -> None:
            while not stop.wait(SUPERVISE_S):
                cluster.supervise()

        thread = threading.Thread(target=supervise, daemon=True)
        thread.start()
        try:
            yield cluster
        finally:
            stop.set()
            thread.join()


def strike(cluster: LocalCluster, case: Case) -> Callable[[], None]:
    """Kill or stop the busiest process of the role; returns what lets it go on."""
    pid = cluster.pids()["planner"] if case.role == "planner" else busiest(actors_of(cluster), case.role)
    os.kill(pid, signal.SIGSTOP if case.stop_s else signal.SIGKILL)

    def go_on() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(case.stop_s, go_on)
    if case.stop_s:
        timer.start()
    return timer.join if case.stop_s else lambda: None


def actors_of(cluster: LocalCluster) -> list[ActorView]:
    """Who is there."""
    client = PlannerClient(cluster.url)
    try:
        return list_actors(client)
    finally:
        client.close()


def busiest(actors: Sequence[ActorView], role: str) -> int:
    """Process id of the one that has served most."""
    work = "pieces_sent" if role == "loader" else "steps_built"
    return max((a for a in actors if a.role is Role(role)), key=lambda actor: actor.stats.get(work, 0.0)).pid


def measure(cluster: LocalCluster, folder: Path, case: Case, *, at: int, after: int) -> dict[str, Any]:
    """Two failures: under a trainer that takes 0.5 s a step, and one that takes none, so that no buffer helps."""
    steps = at + after + FLAT_OUT
    name = f"run-{CASES.index(case)}"
    spec, waits_s, got = spec_of(folder, name, steps, case.shadows), list[float](), Counter[str]()
    cluster.create_run(spec, freeze_run(spec))
    again = at + after + FLAT_OUT // 2
    with loadmaster.connect(cluster.url, run=name, rank=0, world_size=1, framework="numpy") as stream:
        for step in range(steps):
            if step in (at, again):
                wait_ready(cluster, is_warm=case.shadows > 0)
                go_on = strike(cluster, case)
            start_s = time.monotonic()
            got.update(next(stream).sample_ids)
            waits_s.append(time.monotonic() - start_s)
            if step < at + after:
                time.sleep(STEP_S)
            if step == at + after:
                go_on()
    go_on()
    expected = reference(spec, steps)
    paced_s = waits_s[at : at + after]
    usual_s = statistics.median(waits_s[1:at])
    return {
        "wait_s": max(waits_s[again:]),
        "stall_steps": sum(max(0.0, wait_s - usual_s) for wait_s in paced_s) / STEP_S,
        "lost": sum((expected - got).values()),
        "repeated": sum((got - expected).values()),
        "faults": verify(cluster, name).num_faults,
    }


def wait_ready(cluster: LocalCluster, *, is_warm: bool) -> None:
    """Wait until whoever was lost is back, and shadows hold the next steps."""
    until_s = time.monotonic() + READY_S
    wanted = cluster.size.loaders + cluster.size.constructors
    while time.monotonic() < until_s:
        with suppress(LoadmasterError):
            actors = actors_of(cluster)
            loaders = [actor for actor in actors if actor.role is Role.LOADER]
            warm = all(actor.stats.get("shadow_steps", 0) >= 4 for actor in loaders)
            if len(actors) == wanted and (warm or not is_warm):
                return
        time.sleep(0.1)


def reference(spec: RunSpec, steps: int) -> Counter[str]:
    """All samples of the run, by one process."""
    ids: Counter[str] = Counter()
    with EmbeddedRun(spec, freeze_run(spec), dp=1) as run:
        for _plan, batches in islice(run, steps):
            ids.update(ids_of(batches[0], list(SOURCES)))
    return ids


def verify(cluster: LocalCluster, run: str) -> VerifyReport:
    """The ledger's word."""
    client = PlannerClient(cluster.url, timeout_s=120)
    try:
        query = {"stream": "train"}
        lines = retrying(lambda: list(client.lines(f"/runs/{run}/verify", query=query)), deadline_s=30)
    finally:
        client.close()
    return from_json(VerifyReport, json.loads(lines[-1]))


def first_batch_s(url: str, state: dict[str, Any]) -> float:
    """From `connect` to the first batch, at the very step of the state."""
    start_s = time.monotonic()
    with loadmaster.connect(url, rank=0, world_size=1, framework="numpy", resume=state) as stream:
        assert next(stream).step == state["step"]
        return time.monotonic() - start_s


def resume(folder: Path, steps: int) -> dict[str, Any]:
    """Read so many steps, and go on there."""
    spec, state_dir = spec_of(folder, "long", steps + 100, 0), folder / "state-long"
    size = ClusterSize(loaders=1, constructors=1, workers=1)
    with cluster_of(state_dir, size) as cluster:
        cluster.create_run(spec, freeze_run(spec))
        with loadmaster.connect(cluster.url, rank=0, world_size=1, framework="numpy") as stream:
            start_s = time.monotonic()
            num_samples = sum(len(batch.sample_ids) for batch in islice(stream, steps))
            read_s, state = time.monotonic() - start_s, stream.state_dict()
        warm_s = statistics.median(first_batch_s(cluster.url, state) for _ in range(5))
        half_s = first_batch_s(cluster.url, state | {"step": steps // 2 + 3})
    start_s = time.monotonic()
    with cluster_of(state_dir, size) as cluster:
        services_s, cold_s = time.monotonic() - start_s, first_batch_s(cluster.url, state)
        faults = verify(cluster, "long").num_faults
    state_bytes = len(json.dumps(state).encode())
    return {
        "steps": steps,
        "samples": num_samples,
        "read_s": read_s,
        "warm_s": warm_s,
        "half_s": half_s,
        "services_s": services_s,
        "cold_s": cold_s,
        "state_bytes": state_bytes,
        "faults": faults,
    }


def peer(script: str, python: Path, folder: Path, steps: int) -> dict[str, Any]:
    """What another loader takes: its script in its own environment prints one JSON object."""
    argv = [str(python), str(PEERS / script), str(folder), str(steps), str(BATCH_SAMPLES)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=1800, check=False)
    if ended.returncode:
        return {"error": ended.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def print_failures(rows: dict[str, dict[str, Any]]) -> None:
    """The table of failures."""
    print(f"{'':32}{'stall steps':>12}{'next batch s':>14}{'lost':>6}{'repeated':>10}{'verify':>8}")
    for name, row in rows.items():
        counts = f"{row['lost']:6}{row['repeated']:10}{row['faults']:8}"
        print(f"{name:32}{row['stall_steps']:12.2f}{row['wait_s']:14.2f}{counts}")


def print_resume(row: dict[str, Any], peers: dict[str, dict[str, Any]]) -> None:
    """The table of going on."""
    print(f"\ngoing on at step {row['steps']:,} ({row['samples']:,} samples)")
    print(f"{'':40}{'s to the first batch':>22}{'bytes of state':>16}")
    print(f"{'loadmaster, services warm':40}{row['warm_s']:22.3f}{row['state_bytes']:16}")
    print(f"{'loadmaster, at half of the steps':40}{row['half_s']:22.3f}{row['state_bytes']:16}")
    print(f"{'loadmaster, all services started anew':40}{row['cold_s']:22.3f}{row['state_bytes']:16}")
    print(f"{'  (starting them took)':40}{row['services_s']:22.3f}")
    for name, found in peers.items():
        if "error" in found:
            print(f"{name:40} not compared: {found['error']}")
            continue
        print(f"{name:40}{found['resume_s']:22.3f}{found['state_bytes']:16}  ({found['workers']} workers)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four failures, fewer steps, going on at step 1,500")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--mosaic", type=Path, help="python of an environment with mosaicml-streaming")
    parser.add_argument("--litdata", type=Path, help="python of an environment with litdata")
    parser.add_argument("--part", choices=["failures", "resume"], help="this part alone")
    parser.add_argument("--steps", type=int, help="step to go on at (15,000; 1,500 with --quick)")
    args = parser.parse_args()
    at, after = (5, 6) if args.quick else (8, 24)
    steps = args.steps or (1_500 if args.quick else 15_000)
    scripts = {"mosaicml-streaming": ("resume_mosaic.py", args.mosaic), "litdata": ("resume_litdata.py", args.litdata)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sources(folder, num_docs=2_000 if args.quick else 20_000)
        found: dict[str, Any] = {}
        if args.part != "resume":
            rows = measure_all(folder, [case for case in CASES if case.in_quick or not args.quick], at=at, after=after)
            print_failures(rows)
            found |= keys_of_failures(rows)
        if args.part != "failures":
            row = resume(folder, steps)
            peers = {who: peer(script, python, folder, steps) for who, (script, python) in scripts.items() if python}
            print_resume(row, peers)
            found |= keys_of_resume(row, peers)
    if args.json:
        print(json.dumps(found))


def measure_all(folder: Path, cases: Sequence[Case], *, at: int, after: int) -> dict[str, dict[str, Any]]:
    """All failures, in one cluster, by name."""
    with cluster_of(folder / "state", ClusterSize(loaders=2, constructors=2, workers=1)) as cluster:
        return {case.name: measure(cluster, folder, case, at=at, after=after) for case in cases}


def keys_of_failures(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What --json prints of them."""
    by_key = {case.key: rows[case.name] for case in CASES if case.key}
    return {
        "lost": sum(one["lost"] for one in rows.values()),
        "repeated": sum(one["repeated"] for one in rows.values()),
        "shadow_stall_steps": by_key["shadow"]["stall_steps"],
        **{f"{key}_s": by_key[key]["wait_s"] for key in ("loader", "constructor", "planner")},
        "planner_stall_steps": by_key["planner"]["stall_steps"],
        "rows": rows,
    }


def keys_of_resume(row: dict[str, Any], peers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What --json prints of it."""
    return {
        "resume_s": row["warm_s"],
        "resume_cold_s": row["cold_s"],
        "resume_steps": row["steps"],
        "state_bytes": row["state_bytes"],
        "peers": peers,
    }


if __name__ == "__main__":
    main()
