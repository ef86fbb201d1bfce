"""Stopped after whatever step, on whatever mesh it goes on: the rest is that of the run that nobody stopped."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import loadmaster
from loadmaster.digest import record_digest
from loadmaster_flight.spec import RunSpec, SourceManifest, load_run_spec
from loadmaster_flight.wire.control import StreamView
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, StepPlan
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.freezing import freeze_run
from loadmaster_server.planning.planner import PlannerState
from support.ranks import Fetched, fetch_all, ids_of

STEPS = 60
NUM_ROWS = {"prose": 1200, "code": 1000, "zipped": 700, "small": 110, "tiny": 30}
"""Rows of each source; of the last two a run of 60 steps takes more than one epoch."""
NEXT = 2
"""Steps looked at after most stops; after every sixth, and around the ends of epochs, it is all of them."""
MESHES = {
    "dp1": {"pp": 1, "dp": 1, "cp": 1, "tp": 1},
    "dp2": {"pp": 1, "dp": 2, "cp": 1, "tp": 1},
    "dp3": {"pp": 1, "dp": 3, "cp": 1, "tp": 1},
    "dp4": {"pp": 1, "dp": 4, "cp": 1, "tp": 1},
    "dp6": {"pp": 1, "dp": 6, "cp": 1, "tp": 1},
    "pp2-dp3-cp2-tp2": {"pp": 2, "dp": 3, "cp": 2, "tp": 2},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Uninterrupted:
    """The run that nobody stops, on one dp rank.

    Attributes:
        states: Before each step, and after the last one: bytes of the planner's state.
        digests: Of each step's batch.
        ids: Sorted sample ids of each step.
        pieces: Of each step.
        epoch_ends: Steps in which a source begins another epoch.
    """

    path: Path
    spec: RunSpec
    manifests: list[SourceManifest]
    states: list[bytes]
    digests: list[str]
    ids: list[list[str]]
    pieces: list[list[list[int]]]
    epoch_ends: list[int]


def _write_sources(folder: Path) -> dict[str, Any]:
    rng, sources = random.Random(1), {}
    for name, num in NUM_ROWS.items():
        path = folder / f"{name}.jsonl"
        lines = (json.dumps({"text": "x" * int(4 + 26 * rng.random() ** 2)}) for _ in range(num))
        path.write_text("".join(line + "\n" for line in lines))
        sources[name] = {"uri": str(path), "transform": {"text": "text", "eos": False}, "block_bytes": 8192}
    return sources


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Uninterrupted:
    """A run of five sources and 60 steps of 24 microbatches."""
    folder = tmp_path_factory.mktemp("everywhere")
    spec = {
        "run": "everywhere",
        "seed": 5,
        "tokenizer": str(tokenizer_file),
        "sources": _write_sources(folder),
        "mixture": {"weights": {"prose": 4, "code": 3, "zipped": 2, "small": 0.7, "tiny": 0.3}},
        "batch": {"seq_len": 32, "microbatches": 24, "align": 8},
        "until": {"steps": STEPS},
        "budgets": {"plan_ahead": 12, "bind_ahead": 6, "build_ahead": 2},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(spec))
    loaded = load_run_spec(path)
    return _run_whole(path, loaded, freeze_run(loaded))


def _run_whole(path: Path, spec: RunSpec, manifests: list[SourceManifest]) -> Uninterrupted:
    states, digests, ids, pieces, epochs = [], [], [], [], [_epochs(None)]
    with EmbeddedRun(spec, manifests, mesh=MESHES["dp1"]) as run:
        states.append(run.planner.state().to_bytes())
        for plan, batches in run:
            states.append(run.planner.state().to_bytes())
            digests.append(record_digest(batches[0]))
            pieces.append(_pieces(plan))
            ids.append(sorted(ids_of(batches[0], spec.source_names)))
            epochs.append([max(pair) for pair in zip(_epochs(plan), epochs[-1], strict=True)])
    ends = [step for step in range(1, len(ids)) if epochs[step + 1] != epochs[step]]
    return Uninterrupted(
        path=path,
        spec=spec,
        manifests=manifests,
        states=states,
        digests=digests,
        ids=ids,
        pieces=pieces,
        epoch_ends=ends,
    )


def _around(steps: list[int]) -> set[int]:
    """Those steps, and the ones just before and just after them."""
    return {step + by for step in steps for by in (-1, 0, 1)}


def _pieces(plan: StepPlan) -> list[list[int]]:
    """Which pieces a step has, whatever bins they are in."""
    return np.stack([getattr(plan.pieces, name) for name in PIECE_COLUMNS if name != "bin"]).tolist()


def _epochs(plan: StepPlan | None) -> list[int]:
    """The latest epoch of each source in a step."""
    sources = range(len(NUM_ROWS))
    if plan is None:
        return [0 for _ in sources]
    return [int(plan.pieces.epoch[plan.pieces.source == source].max(initial=0)) for source in sources]


def test_run_then_has_sources_smaller_than_it_takes_of_them(whole: Uninterrupted) -> None:
    assert len(whole.digests) == STEPS
    assert len(whole.epoch_ends) >= 3
    assert 1 < min(whole.epoch_ends) < max(whole.epoch_ends) < STEPS - 1


def test_client_when_stopped_after_any_step_then_the_rest_has_the_same_bytes(
    whole: Uninterrupted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where an embedded run keeps its checkpoints
    with loadmaster.connect(str(whole.path), framework="numpy") as stream:
        saved = [(stream.state_dict(), batch.digest()) for batch in stream]
    assert [digest for _, digest in saved] == whole.digests
    for step, (state, _) in enumerate(saved):
        num = STEPS if step % 6 == 0 or step + 1 in _around(whole.epoch_ends) else NEXT
        with loadmaster.connect(str(whole.path), resume=state, framework="numpy") as stream:
            rest = [(batch.step, batch.digest()) for batch in itertools.islice(stream, num)]
        assert rest == list(enumerate(whole.digests))[step + 1 : step + 1 + num], f"stopped after step {step}"


@pytest.mark.parametrize("mesh", MESHES)
def test_planner_when_stopped_after_any_step_then_goes_on_the_same_on_any_mesh(whole: Uninterrupted, mesh: str) -> None:
    # Where the planner's state is that of the uninterrupted run, the rest is too: that it goes on from there is what
    # the next stop shows. Around the end of an epoch the rest is looked at itself.
    around = _around(whole.epoch_ends[-1:])
    for step in range(1, STEPS):
        state = PlannerState.from_bytes(whole.states[step])
        with EmbeddedRun(whole.spec, whole.manifests, mesh=MESHES[mesh], state=state) as run:
            for at in range(step, STEPS if step in around else step + 1):
                plan = run.plan_next()
                assert plan is not None
                assert _pieces(plan) == whole.pieces[at], f"stopped at {step}, step {at}"
                if step in around:
                    ids = [sid for batch in run.build(plan).values() for sid in ids_of(batch, whole.spec.source_names)]
                    assert sorted(ids) == whole.ids[at], f"stopped at {step}, step {at}"
                assert run.planner.state().to_bytes() == whole.states[at + 1], f"stopped at {step}, step {at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A part of the run, from where the one before it was stopped: `size` None goes on with the same processes."""

    until: int
    mesh: dict[str, int]
    size: dict[str, int] | None = None


LEGS = [
    Leg(until=9, mesh={"pp": 1, "dp": 2, "cp": 1, "tp": 1}, size={"loaders": 1, "constructors": 1, "workers": 1}),
    Leg(until=18, mesh={"pp": 1, "dp": 2, "cp": 1, "tp": 1}),
    Leg(until=26, mesh={"pp": 1, "dp": 3, "cp": 1, "tp": 1}),
    Leg(until=35, mesh={"pp": 2, "dp": 1, "cp": 2, "tp": 2}, size={"loaders": 2, "constructors": 1, "workers": 2}),
    Leg(until=42, mesh={"pp": 1, "dp": 4, "cp": 1, "tp": 1}),
    Leg(until=51, mesh={"pp": 1, "dp": 6, "cp": 1, "tp": 1}, size={"loaders": 3, "constructors": 2, "workers": 1}),
    Leg(until=STEPS, mesh={"pp": 1, "dp": 1, "cp": 2, "tp": 1}),
]
BEYOND = 3
"""Steps that ranks take after the one that their checkpoint names: they are served again."""


@pytest.mark.processes
def test_processes_when_stopped_six_times_then_every_rank_gets_the_bytes_of_the_run_that_was_not(
    whole: Uninterrupted, start_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster, state, step = None, None, 0
    for leg in LEGS:
        if leg.size is not None:
            if cluster is not None:
                cluster.stop()
            cluster = start_cluster(whole.spec, whole.manifests, state_dir=tmp_path / "state", **leg.size)
        assert cluster is not None
        last = min(leg.until + BEYOND, STEPS)
        ranks = fetch_all(
            cluster.url,
            world_size=leg.mesh["pp"] * leg.mesh["dp"] * leg.mesh["cp"] * leg.mesh["tp"],
            mesh=leg.mesh,
            steps=last - step,
            resume=state,
        )
        expected = list(_expected(whole, leg.mesh, step, last))
        assert [[(f.step, f.digest) for f in rank] for rank in ranks] == [
            list(rank) for rank in zip(*expected, strict=True)
        ]
        assert _ids(ranks, leg.mesh) == whole.ids[step:last]
        step = leg.until
        state = _state_at(cluster.url, step)


def _state_at(url: str, step: int) -> dict[str, Any]:
    """What every rank's `state_dict` said after that step."""
    planner = PlannerClient(url)
    newest = planner.get("/runs/everywhere/streams/train", StreamView).generation
    planner.close()
    return {"run": "everywhere", "stream": "train", "generation": newest, "step": step}


def _expected(whole: Uninterrupted, mesh: dict[str, int], first: int, last: int) -> Iterator[list[tuple[int, str]]]:
    """Step and digest of every rank, step by step, of a run on that mesh from the beginning to the end."""
    num = mesh["pp"] * mesh["dp"] * mesh["cp"] * mesh["tp"]
    with EmbeddedRun(whole.spec, whole.manifests, mesh=mesh) as run:
        while run.planner.step < last:
            plan = run.plan_next()
            assert plan is not None
            if plan.step >= first:
                batches = run.build_ranks(plan, range(num))
                yield [(plan.step, record_digest(batches[rank])) for rank in range(num)]


def _ids(ranks: list[list[Fetched]], mesh: dict[str, int]) -> list[list[str]]:
    """Sorted sample ids of each step; ranks that differ in pp, cp or tp alone have the same ones."""
    of_dp = ranks[: mesh["dp"] * mesh["cp"] * mesh["tp"] : mesh["cp"] * mesh["tp"]]
    return [sorted(sid for fetched in step for sid in fetched.sample_ids) for step in zip(*of_dp, strict=True)]
