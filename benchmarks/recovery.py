"""What a lost process costs a trainer, and what going on costs: a real cluster, and a trainer that takes 0.5 s a step.

Horizons and leases are the defaults. In each case one process is killed before a step, or stopped or cut off for 8 s;
`stall` is what the trainer waited for the steps from then on, in steps. A planner or database that was killed is
started again at once, loaders and constructors later. Then it strikes a trainer that takes no time for a step, so that
what lies ready does not help: `next batch` is its longest wait. The samples that arrived are compared with those of a
run in one process: lost, repeated. (Two loaders: one with a shadow is a shadow of the other too. A shadow that is
struck itself owns nothing.) Where a rank is struck there are two, each a process, under a launcher that starts both
again from their last checkpoint when one dies: `stall` is what the struck rank waited for steps since then, `next
batch` how long both took to have one since the strike, or since the rank was back. Then a run of 15,000 steps is
read, and its ranks go on there: with all services warm, with all of them started anew, and halfway back. Beside it, in
environments of their own (--mosaic PYTHON, --litdata PYTHON), what others take after as many samples.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import loadmaster
from loadmaster.cli.actors import list_actors
from loadmaster.digest import record_digest
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.control import Role, StreamView, from_json
from loadmaster_flight.wire.errors import LoadmasterError
from loadmaster_flight.wire.http import PlannerClient, retrying
from loadmaster_flight.wire.ledger import VerifyReport
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster
from loadmaster_server.launch.registering import register_run
from loadmaster_server.settings import PlannerSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.job import WORLD, Job
from support.kill_matrix import Fault, Party
from support.ranks import ids_of
from support.rig import PLANNER, Rig, strike
from support.severing import SeveringProxy
from support.temporary_postgres import temporary_postgres, why_not

PEERS = Path(__file__).parent / "peers"
STEP_S = 0.5
SUPERVISE_S = 0.5
READY_S = 20.0
QUICK_STEPS = 150
STALLS = ("shadow", "planner")
RANK_TIMEOUT_S = 120.0
OUTAGE_S = 8.0
SOURCES = ("web", "code", "books")
BATCH_SAMPLES = 10
STRUCK = (Party.LOADER, Party.SHADOW, Party.CONSTRUCTOR, Party.PLANNER, Party.DATABASE, Party.RANK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What happens to whom; `shadows` of each source. `key`: in --json and with --quick."""

    fault: Fault
    party: Party
    shadows: int = 0
    key: str = ""

    def __str__(self) -> str:
        shadow = {0: ", no shadow", 1: ", shadow"}[self.shadows] if self.party is Party.LOADER else ""
        return f"{self.party} {WHAT_HAPPENS[self.fault]}{shadow}"

    @property
    def sources(self) -> Sequence[str]:
        """A single one, in one lane, where a loader is to stand by and own nothing."""
        return SOURCES[:1] if self.party is Party.SHADOW else SOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How many steps: before the first failure, paced ones since then (0: there is no such failure), and flat out."""

    at: int = 8
    after: int = 24
    flat_out: int = 80

    @property
    def again(self) -> int:
        """Where the second failure strikes."""
        return self.at + self.after + self.flat_out // 2

    @property
    def steps(self) -> int:
        return self.at + self.after + self.flat_out


WHAT_HAPPENS = {Fault.KILL: "killed", Fault.STOP: f"stopped {OUTAGE_S:.0f} s", Fault.CUT: f"cut off {OUTAGE_S:.0f} s"}
PARTIES = [("shadow", Party.LOADER, 1), *((str(p), p, int(p is Party.SHADOW)) for p in STRUCK)]
KEYS = {("shadow", Party.LOADER), *((str(p), p) for p in (Party.LOADER, Party.CONSTRUCTOR, Party.PLANNER))}
CASES = [
    Case(fault=fault, party=party, shadows=shadows, key=key if fault is Fault.KILL and (key, party) in KEYS else "")
    for fault in Fault
    for key, party, shadows in PARTIES
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


def spec_of(folder: Path, name: str, steps: int, *, shadows: int = 0, sources: Sequence[str] = SOURCES) -> RunSpec:
    """Three sources, or one in one lane; steps of 1,024 tokens."""
    weights = {"web": 0.6, "code": 0.3, "books": 0.1}
    lanes = {"lanes": 1} if len(sources) == 1 else {}
    return RunSpec.model_validate(
        {
            "run": name,
            "vocab_size": 1000,
            "sources": {
                s: {"uri": str(folder / s / "*.parquet"), "transform": {"tokens": "ids"}, "shadows": shadows} | lanes
                for s in sources
            },
            "mixture": {"weights": {s: weights[s] for s in sources}},
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


@contextmanager
def rig_of(folder: Path) -> Iterator[Rig]:
    """Two loaders and two constructors with the leases of `loadmaster planner`, on PostgreSQL where there is one."""
    defaults = PlannerSettings()
    with ExitStack() as stack:
        postgres = None if why_not() else stack.enter_context(temporary_postgres())
        rig = Rig(folder=folder, postgres=postgres, lease_s=defaults.lease_s, heartbeat_s=defaults.heartbeat_s)
        yield stack.enter_context(rig)


def begin(rig: Rig, case: Case, run: str) -> Callable[[], None]:
    """Strike the planner, the database or who serves the run; returns what waits for the end of it."""
    pids, proxies = target(rig, case.party, run)
    mend = strike(rig, pids, case.fault, proxies)

    def end() -> None:
        if case.fault is not Fault.KILL:
            time.sleep(OUTAGE_S)
            mend()
        else:
            rig.revive(case.party)

    thread = threading.Thread(target=end, daemon=True)
    thread.start()
    return thread.join


def target(rig: Rig, party: Party, run: str) -> tuple[list[int], list[SeveringProxy]]:
    """Processes of a party, and the ways to it."""
    if party is Party.DATABASE:
        assert rig.database_proxy is not None
        return rig.database_pids(), [rig.database_proxy]
    role = "constructor" if party is Party.CONSTRUCTOR else "loader"
    name = PLANNER if party is Party.PLANNER else rig.owner(run, role, standby=party is Party.SHADOW)
    return [rig.members[name].process.pid], [rig.members[name].proxy]


def measure(rig: Rig, folder: Path, case: Case, length: Length) -> dict[str, Any]:
    """Two failures: under a trainer that takes 0.5 s a step, and one that takes none, so that no buffer helps."""
    name, paced = f"run-{CASES.index(case)}", length.at + length.after
    spec = spec_of(folder, name, length.steps, shadows=case.shadows, sources=case.sources)
    waits_s, got, wait_ends = list[float](), Counter[str](), list[Callable[[], None]]()
    rig.restart_lost()
    register_run(rig.url, spec, freeze_run(spec), timeout_s=60)
    with loadmaster.connect(rig.url, run=name, rank=0, world_size=1, framework="numpy") as stream:
        for step in range(length.steps):
            if step == 1:
                wait_planned(rig, spec)
            if step == length.again or (step == length.at and length.after):
                wait_ready(rig, is_warm=case.shadows > 0)
                wait_ends.append(begin(rig, case, name))
            start_s = time.monotonic()
            got.update(next(stream).sample_ids)
            waits_s.append(time.monotonic() - start_s)
            if length.after and step < paced:
                time.sleep(STEP_S)
            if step == paced:
                wait_all(wait_ends)
    wait_all(wait_ends)
    expected = reference(spec, length.steps)
    usual_s = statistics.median(waits_s[1 : length.at])
    return {
        "wait_s": max(waits_s[length.again :]),
        "stall_steps": stall(waits_s[length.at : paced], usual_s=usual_s) if length.after else None,
        "lost": sum((expected - got).values()),
        "repeated": sum((got - expected).values()),
        "faults": verify(rig.url, name).num_faults,
    }


def wait_all(wait_ends: list[Callable[[], None]]) -> None:
    """Until what was begun is over."""
    while wait_ends:
        wait_ends.pop()()


def stall(waits_s: Sequence[float], *, usual_s: float) -> float:
    """What was waited for beyond what is usual, in steps."""
    return sum(max(0.0, wait_s - usual_s) for wait_s in waits_s) / STEP_S


def measure_rank(rig: Rig, folder: Path, case: Case, length: Length) -> dict[str, Any]:
    """One of two ranks is struck; a launcher starts both again where it has died."""
    at, name = length.at, f"run-{CASES.index(case)}"
    spec = spec_of(folder, name, at + length.after)
    rig.restart_lost()
    register_run(rig.url, spec, freeze_run(spec), timeout_s=60)
    job = Job(rig, name, folder / name, are_apart=True, step_s=STEP_S)
    try:
        job.start()
        job.wait(lambda: job.reached() > at, f"step {at}", RANK_TIMEOUT_S)
        before, attempts = [len(job.lines(rank)) for rank in range(WORLD)], job.attempts + (case.fault is Fault.KILL)
        mend = strike(rig, [job.processes[-1].pid], case.fault, [])
        if case.fault is not Fault.KILL:
            time.sleep(OUTAGE_S)
            before = [len(job.lines(rank)) for rank in range(WORLD)]
        start_s = time.monotonic()
        mend()
        job.wait(lambda: job.attempts == attempts and has_more(job, before), "the next batch", RANK_TIMEOUT_S)
        wait_s = time.monotonic() - start_s
        job.wait(job.has_ended, "the end", RANK_TIMEOUT_S)
    finally:
        job.kill()
    lines = job.lines(WORLD - 1)
    usual_s = statistics.median(line["wait_s"] for line in lines[2:at])
    since = [line["wait_s"] for line in lines[before[-1] :] if "wait_s" in line]
    counts = tally(job, spec)
    return (
        {"wait_s": wait_s, "stall_steps": stall(since, usual_s=usual_s)}
        | counts
        | {"faults": verify(rig.url, name).num_faults}
    )


def has_more(job: Job, before: Sequence[int]) -> bool:
    """Whether every rank has had a step since it had written so many lines."""
    return all(any("step" in line for line in job.lines(rank)[before[rank] :]) for rank in range(WORLD))


def tally(job: Job, spec: RunSpec) -> dict[str, int]:
    """Steps that a rank does not have as a run in one process does, and that it had twice in one attempt."""
    with EmbeddedRun(spec, freeze_run(spec), dp=WORLD) as run:
        expected = [[record_digest(batches[rank]) for rank in range(WORLD)] for _plan, batches in run]
    lost = repeated = 0
    for rank in range(WORLD):
        digests: dict[int, str] = {}
        this_attempt: set[int] = set()
        for line in job.lines(rank):
            if "from" in line:
                this_attempt = set()
                continue
            repeated += line["step"] in this_attempt
            this_attempt.add(line["step"])
            digests[line["step"]] = line["digest"]
        lost += sum(digests.get(step) != each[rank] for step, each in enumerate(expected))
    return {"lost": lost, "repeated": repeated}


def wait_planned(rig: Rig, spec: RunSpec) -> None:
    """Until as much is planned as may be, so that the horizons are full when something is struck."""
    until_s = time.monotonic() + READY_S
    wanted = min(spec.budgets.plan_ahead, spec.until.steps or spec.budgets.plan_ahead)
    while time.monotonic() < until_s:
        with suppress(LoadmasterError):
            if rig.client.get(f"/runs/{spec.run}/streams/train", StreamView).planned >= wanted:
                return
        time.sleep(0.1)


def wait_ready(rig: Rig, *, is_warm: bool) -> None:
    """Start again who was lost, and wait until all are there, and shadows hold the next steps."""
    rig.restart_lost()
    until_s = time.monotonic() + READY_S
    while is_warm and time.monotonic() < until_s:
        with suppress(LoadmasterError):
            loaders = [actor.stats for actor in list_actors(rig.client) if actor.role is Role.LOADER]
            shadows = [stats for stats in loaders if stats.get("shadow_partitions", 0) > 0]
            if shadows and all(stats.get("shadow_steps", 0) >= 4 for stats in shadows):
                return
        time.sleep(0.1)


def reference(spec: RunSpec, steps: int) -> Counter[str]:
    """All samples of the run, by one process."""
    ids: Counter[str] = Counter()
    with EmbeddedRun(spec, freeze_run(spec), dp=1) as run:
        for _plan, batches in islice(run, steps):
            ids.update(ids_of(batches[0], spec.source_names))
    return ids


def verify(url: str, run: str) -> VerifyReport:
    """The ledger's word."""
    client = PlannerClient(url, timeout_s=120)
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


def resume(folder: Path, steps: int, *, is_quick: bool) -> dict[str, Any]:
    """Read so many steps, and go on there a few times; unless quick, with all services started anew too."""
    spec, state_dir = spec_of(folder, "long", steps + 100), folder / "state-long"
    size = ClusterSize(loaders=1, constructors=1, workers=1)
    with cluster_of(state_dir, size) as cluster:
        cluster.create_run(spec, freeze_run(spec))
        with loadmaster.connect(cluster.url, rank=0, world_size=1, framework="numpy") as stream:
            start_s = time.monotonic()
            num_samples = sum(len(batch.sample_ids) for batch in islice(stream, steps))
            read_s, state = time.monotonic() - start_s, stream.state_dict()
        warm_s = statistics.median(first_batch_s(cluster.url, state) for _ in range(3 if is_quick else 5))
        half_s = first_batch_s(cluster.url, state | {"step": steps // 2 + 3})
        faults = verify(cluster.url, "long").num_faults
    cold: dict[str, Any] = {}
    if not is_quick:
        start_s = time.monotonic()
        with cluster_of(state_dir, size) as cluster:
            cold["services_s"], cold["cold_s"] = time.monotonic() - start_s, first_batch_s(cluster.url, state)
            faults += verify(cluster.url, "long").num_faults
    state_bytes = len(json.dumps(state).encode())
    return {
        "steps": steps,
        "samples": num_samples,
        "read_s": read_s,
        "warm_s": warm_s,
        "half_s": half_s,
        **cold,
        "state_bytes": state_bytes,
        "faults": faults,
    }


def peer(script: str, python: Path, folder: Path, batches: int) -> dict[str, Any]:
    """What another loader takes after so many batches: its script in its own environment prints one JSON object."""
    argv = [str(python), str(PEERS / script), str(folder), str(batches), str(BATCH_SAMPLES)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=1800, check=False)
    if ended.returncode:
        return {"error": ended.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def print_failure(name: str, row: dict[str, Any]) -> None:
    """A row of the table of failures."""
    counts = f"{row['lost']:6}{row['repeated']:10}{row['faults']:8}"
    stall_steps = "" if row["stall_steps"] is None else f"{row['stall_steps']:.2f}"
    print(f"{name:32}{stall_steps:>12}{row['wait_s']:14.2f}{counts}", flush=True)


def print_resume(row: dict[str, Any], peers: dict[str, dict[str, Any]]) -> None:
    """The table of going on."""
    print(f"\ngoing on at step {row['steps']:,} ({row['samples']:,} samples)")
    print(f"{'':40}{'s to the first batch':>22}{'bytes of state':>16}")
    print(f"{'loadmaster, services warm':40}{row['warm_s']:22.3f}{row['state_bytes']:16}")
    print(f"{'loadmaster, at half of the steps':40}{row['half_s']:22.3f}{row['state_bytes']:16}")
    if "cold_s" in row:
        print(f"{'loadmaster, all services started anew':40}{row['cold_s']:22.3f}{row['state_bytes']:16}")
        print(f"{'  (starting them took)':40}{row['services_s']:22.3f}")
    for name, found in peers.items():
        if "error" in found:
            print(f"{name:40} not compared: {found['error']}")
            continue
        print(f"{name:40}{found['resume_s']:22.3f}{found['state_bytes']:16}  ({found['workers']} workers)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help=f"four failures, fewer steps, going on at step {QUICK_STEPS}"
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--mosaic", type=Path, help="python of an environment with mosaicml-streaming")
    parser.add_argument("--litdata", type=Path, help="python of an environment with litdata")
    parser.add_argument("--part", choices=["failures", "resume"], help="this part alone")
    parser.add_argument("--only", default="", help="failures whose name has this in it: `planner stopped`")
    parser.add_argument("--steps", type=int, help=f"step to go on at (15,000; {QUICK_STEPS} with --quick)")
    args = parser.parse_args()
    steps = args.steps or (QUICK_STEPS if args.quick else 15_000)
    scripts = {"mosaicml-streaming": ("resume_mosaic.py", args.mosaic), "litdata": ("resume_litdata.py", args.litdata)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sources(folder, num_docs=1_000 if args.quick else 20_000)
        found: dict[str, Any] = {}
        if args.part != "resume":
            cases = [case for case in CASES if (case.key or not args.quick) and args.only in str(case)]
            rows = measure_all(folder, cases, is_quick=args.quick)
            found |= keys_of_failures(rows)
        if args.part != "failures":
            row = resume(folder, steps, is_quick=args.quick)
            batches = -(-row["samples"] // BATCH_SAMPLES)
            peers = {who: peer(script, python, folder, batches) for who, (script, python) in scripts.items() if python}
            print_resume(row, peers)
            found |= keys_of_resume(row, peers)
    if args.json:
        print(json.dumps(found))


def length_of(case: Case, *, is_quick: bool) -> Length:
    """Quick: a stall is measured of those alone that have a goal for it."""
    if not is_quick:
        return Length()
    return Length(at=6, after=5 if case.key in STALLS else 0, flat_out=20)


def measure_all(folder: Path, cases: Sequence[Case], *, is_quick: bool) -> dict[str, dict[str, Any]]:
    """Print and return all failures, with the same processes, by name; without PostgreSQL none of the database."""
    rows: dict[str, dict[str, Any]] = {}
    print(f"{'':32}{'stall steps':>12}{'next batch s':>14}{'lost':>6}{'repeated':>10}{'verify':>8}", flush=True)
    with rig_of(folder / "rig") as rig:
        for case in cases:
            if case.party is Party.DATABASE and rig.postgres is None:
                continue
            one = measure_rank if case.party is Party.RANK else measure
            rows[str(case)] = one(rig, folder, case, length_of(case, is_quick=is_quick))
            print_failure(str(case), rows[str(case)])
    return rows


def keys_of_failures(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What --json prints of them."""
    by_key = {case.key: rows[str(case)] for case in CASES if case.key and str(case) in rows}
    return {
        "lost": sum(one["lost"] for one in rows.values()),
        "repeated": sum(one["repeated"] for one in rows.values()),
        **{f"{key}_stall_steps": by_key[key]["stall_steps"] for key in STALLS if key in by_key},
        **{f"{key}_s": by_key[key]["wait_s"] for key in ("loader", "constructor", "planner") if key in by_key},
        "rows": rows,
    }


def keys_of_resume(row: dict[str, Any], peers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What --json prints of it."""
    return {
        "resume_s": row["warm_s"],
        "resume_cold_s": row.get("cold_s"),
        "resume_steps": row["steps"],
        "state_bytes": row["state_bytes"],
        "peers": peers,
    }


if __name__ == "__main__":
    main()
