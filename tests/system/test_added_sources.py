"""A source joins a live run of processes: every rank gets it from one step on, as one process would plan it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import loadmaster
from loadmaster.cli import main
from loadmaster_flight.spec import RunSpec, ScheduleSpec, SourceManifest, revised
from loadmaster_server.access import Role
from loadmaster_server.embedded import EmbeddedRun
from support.editing import Editor, token_in
from support.ranks import ids_of

pytestmark = pytest.mark.processes
ADD_AT, SAVE_AT, UNTIL = 8, 30, 40
ADDED = "zipped"
Seen = list[tuple[int, list[str], bytes]]


class _Trainer:
    """Two ranks that train until `UNTIL`, wait at `ADD_AT` for the source, and keep what they saw."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_there, self.is_added = threading.Barrier(3), threading.Event()
        self.saved: dict[int, dict[str, Any]] = {}

    def first(self, rank: int) -> Seen:
        seen: Seen = []
        with loadmaster.connect(self.url, rank=rank, world_size=2, framework="numpy") as stream:
            for batch in stream:
                seen.append(_seen(batch))
                if batch.step == ADD_AT:
                    self.is_there.wait(60)
                    assert self.is_added.wait(60)
                if batch.step == SAVE_AT - 1:
                    self.saved[rank] = stream.state_dict()
                    break
        return seen

    def again(self, rank: int) -> Seen:
        state = self.saved[rank] | {"step": SAVE_AT - 4}
        with loadmaster.connect(self.url, rank=rank, world_size=2, framework="numpy", resume=state) as stream:
            return [_seen(batch) for batch in stream]


def _seen(batch: Any) -> tuple[int, list[str], bytes]:
    return batch.step, list(batch.sample_ids), batch.tokens.astype("<i8").tobytes()


def _without(spec: RunSpec, manifests: list[SourceManifest]) -> tuple[RunSpec, list[SourceManifest]]:
    """The run as it is created: without the source that is added later."""
    tree = spec.to_tree()
    sources = {name: source for name, source in tree["sources"].items() if name != ADDED}
    weights = {name: ramp for name, ramp in tree["mixture"]["weights"].items() if name != ADDED}
    small = RunSpec.model_validate(tree | {"sources": sources, "mixture": tree["mixture"] | {"weights": weights}})
    kept = [manifest for manifest in manifests if manifest.name != ADDED]
    return small, [manifest.model_copy(update={"ordinal": i}) for i, manifest in enumerate(kept)]


def _embedded(spec: RunSpec, manifests: list[SourceManifest], revision: dict[str, Any], frozen: Any) -> list[Seen]:
    """What both ranks get when one process plans and builds it all."""
    switch, schedule = revision["from_step"], ScheduleSpec.model_validate(revision["schedule"])
    grown = RunSpec.model_validate(frozen["spec"])
    added = [SourceManifest.model_validate(tree) for tree in frozen["manifests"][len(manifests) :]]
    ranks: list[Seen] = [[], []]
    with EmbeddedRun(spec, manifests, dp=2) as run:
        while not run.planner.is_over:
            if run.planner.step == switch:
                run.follow(revised(grown, schedule), 1, added)
            plan, batches = next(run)
            for rank, seen in enumerate(ranks):
                tokens = batches[rank].column("tokens").to_numpy_ndarray()
                ids = ids_of(batches[rank], run.spec.source_names)
                seen.append((plan.step, ids, tokens.astype("<i8").tobytes()))
    return ranks


def test_batches_when_a_source_is_added_then_all_ranks_get_it_from_one_step_on(
    frozen: Callable[..., Any], make_run: Callable[..., Path], start_cluster: Callable[..., Any], monkeypatch: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    budgets = {"plan_ahead": 30, "bind_ahead": 6, "build_ahead": 3}
    spec, manifests = _without(*frozen(until={"steps": UNTIL}, budgets=budgets))
    cluster = start_cluster(spec, manifests, loaders=2, constructors=2)
    token = token_in(cluster.state_dir, "ada", Role.PUBLISHER)
    editor, trainer = Editor(cluster.url, run=spec.run, token=token), _Trainer(cluster.url)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(trainer.first, rank) for rank in range(2)]
        trainer.is_there.wait(60)
        with monkeypatch.context() as environment:
            environment.setenv("LOADMASTER_TOKEN", token)
            assert main(["add-source", str(make_run()), ADDED, "--planner", cluster.url, "--json"]) == 0
        answer = editor.publish({ADDED: 1.0})
        trainer.is_added.set()
        ranks = [job.result(240) for job in jobs]
        resumed = [job.result(240) for job in [pool.submit(trainer.again, rank) for rank in range(2)]]
    assert json.loads(capsys.readouterr().out)["source"] == ADDED
    revision = answer.body["revision"]
    assert ADD_AT < revision["from_step"] < SAVE_AT - 4
    expected = _embedded(spec, manifests, revision, editor.ask("GET", "/definition").body)
    for rank in range(2):
        assert ranks[rank] == expected[rank][:SAVE_AT]
        assert resumed[rank] == expected[rank][SAVE_AT - 4 :]
        first = next(step for step, ids, _ in expected[rank] if any(one.startswith(f"{ADDED}/") for one in ids))
        assert revision["from_step"] <= first <= revision["from_step"] + 2
    assert editor.audit() == [("ada", "source_added", None), ("ada", "published", 1)]
    assert main(["verify", cluster.url, spec.run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_faults"] == 0
