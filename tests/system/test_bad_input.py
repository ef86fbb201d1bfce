"""Rows that cannot be served: a verdict, the next good row of the same source in its place, and nothing lost."""

from __future__ import annotations

import itertools
import re
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import loadmaster
from loadmaster.digest import record_digest
from loadmaster.documents import documents_of
from loadmaster_flight.spec import RunSpec, SourceManifest, load_run_spec
from loadmaster_flight.wire.errors import DataError, DeadlineError, LoadmasterError, RunPausedError, SourceError
from loadmaster_flight.wire.step_plan import StepPlan
from loadmaster_server.embedded import EmbeddedRun
from loadmaster_server.freezing import freeze_run
from loadmaster_server.launch import ClusterSize, LocalCluster
from support.bad_files import DamagedSource, json_lines, sentence, write_damaged
from support.commands import loadmaster_command
from support.ranks import fetch_all

RANKS = 2
ROW_LEN = 256
TIGHT = {"plan_ahead": 2, "bind_ahead": 2, "build_ahead": 1, "window_bytes": 1 << 16, "shuffle_bytes": 1 << 16}
"""Little is read before it is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An embedded run over all damaged sources, one epoch of each."""

    spec: RunSpec
    manifests: list[SourceManifest]
    sources: dict[str, DamagedSource]
    plans: list[StepPlan]
    batches: list[dict[int, pa.RecordBatch]]
    unserved_S: list[Any]
    verdicts: list[dict[str, Any]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Reference:
    folder = tmp_path_factory.mktemp("damaged")
    sources = write_damaged(folder)
    tree = {
        "run": "damaged",
        "seed": 5,
        "tokenizer": str(tokenizer_file),
        "sources": {name: source.tree for name, source in sources.items()},
        "mixture": {"weights": {name: 1 + i / 20 for i, name in enumerate(sources)}},
        "batch": {"seq_len": ROW_LEN, "microbatches": RANKS},
        "until": {"epochs": 1},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    spec = load_run_spec(path)
    return _run_embedded(spec, freeze_run(spec), sources)


def _run_embedded(spec: RunSpec, manifests: list[SourceManifest], sources: dict[str, DamagedSource]) -> Reference:
    plans, batches, unserved_S = [], [], []
    with EmbeddedRun(spec, manifests, dp=RANKS) as run:
        for plan, built in run:
            plans.append(plan)
            batches.append(built)
            unserved_S.append(run.planner.unserved().tokens_S)
        verdicts = run.planner.new_verdicts().to_pylist()
    return Reference(
        spec=spec,
        manifests=manifests,
        sources=sources,
        plans=plans,
        batches=batches,
        unserved_S=unserved_S,
        verdicts=verdicts,
    )


def test_rows_when_some_are_damaged_then_each_good_one_is_served_once(reference: Reference) -> None:
    served: Counter[tuple[str, int, int, int]] = Counter()
    for built in reference.batches:
        for documents in (d for batch in built.values() for d in documents_of(batch)):
            for i in np.flatnonzero(documents.first_token == 0):
                name = reference.spec.source_names[documents.source[i]]
                served[name, int(documents.shard[i]), int(documents.block[i]), int(documents.row[i])] += 1
    good = {(name, *place) for name, source in reference.sources.items() for place in source.good}
    assert set(served) == good
    assert set(served.values()) == {1}


def test_verdicts_when_rows_are_damaged_then_each_is_told_once_with_place_and_reason(reference: Reference) -> None:
    names = reference.spec.source_names
    found = {(names[v["source"]], v["shard"], v["block"], v["row"]): v["reason"] for v in reference.verdicts}
    expected = {(name, *place): reason for name, s in reference.sources.items() for place, reason in s.verdicts.items()}
    assert len(found) == len(reference.verdicts)
    assert set(found) == set(expected)
    assert {place: reason for place, reason in found.items() if not reason.startswith(expected[place])} == {}


def test_mixture_when_rows_are_damaged_then_shares_hold_until_a_source_ends(reference: Reference) -> None:
    """A source is served its share, whatever lies between its good rows: within a piece and what it has queued."""
    share_S = reference.plans[0].weights_S / (1 << 30)
    steady = [plan for plan in reference.plans if np.array_equal(plan.weights_S, reference.plans[0].weights_S)]
    assert len(steady) >= 5
    placed_S = np.cumsum([plan.source_tokens_S for plan in steady], axis=0)
    target_S = placed_S.sum(axis=1, keepdims=True) * share_S
    assert (np.abs(placed_S - target_S) <= ROW_LEN + np.array(reference.unserved_S[: len(steady)])).all()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    size = ClusterSize(loaders=2, constructors=1, workers=2)
    with LocalCluster(state_dir=tmp_path_factory.mktemp("cluster"), size=size) as cluster:
        yield cluster


@pytest.mark.processes
def test_run_when_distributed_then_steps_and_verdicts_are_those_of_the_embedded_one(
    reference: Reference, cluster: LocalCluster
) -> None:
    cluster.create_run(reference.spec, reference.manifests)
    ranks = fetch_all(cluster.url, world_size=RANKS, run="damaged", timeout_s=60)
    digests = [[record_digest(built[rank]) for built in reference.batches] for rank in range(RANKS)]
    assert [[fetched.digest for fetched in rank] for rank in ranks] == digests
    with sqlite3.connect(cluster.state_dir / "planner.db") as store:
        columns = ("source", "epoch", "shard", "block", "row", "verdict", "reason")
        rows = store.execute(f"select {', '.join(columns)} from verdicts where run = 'damaged'").fetchall()
    assert sorted(rows) == sorted(tuple(v[name] for name in columns) for v in reference.verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFiles:
    """A run over files of a test's own: the source `own` of four equal shards, and a sound one beside it."""

    folder: Path
    run: str
    tokenizer: Path

    def freeze(self, rows: bytes, *, batch: dict[str, Any] | None = None) -> tuple[RunSpec, list[SourceManifest]]:
        for shard in range(4):
            (self.folder / f"{shard}.jsonl").write_bytes(rows)
        (self.folder / "sound").mkdir()
        (self.folder / "sound" / "a.jsonl").write_bytes(json_lines(map(sentence, range(50))))
        names = {"own": self.folder / "*.jsonl", "sound": self.folder / "sound" / "a.jsonl"}
        tree = {
            "run": self.run,
            "tokenizer": str(self.tokenizer),
            "sources": {
                name: {"uri": str(uri), "transform": {"text": "text"}, "block_bytes": 1 << 12, "lanes": 2}
                for name, uri in names.items()
            },
            "batch": {"seq_len": ROW_LEN, "microbatches": 2 * RANKS, **(batch or {})},
            "budgets": TIGHT,
        }
        path = self.folder / "run.yaml"
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        spec = load_run_spec(path)
        return spec, freeze_run(spec)


@pytest.fixture
def own_files(tmp_path: Path, tokenizer_file: Path) -> OwnFiles:
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(tokenizer_file.read_bytes())
    return OwnFiles(folder=tmp_path, run=tmp_path.name, tokenizer=tokenizer)


def ends_of(cluster: LocalCluster, run: str) -> list[tuple[list[str], LoadmasterError]]:
    """Each rank's steps, as digests, and the error that its stream ends with; all of them fetch at the same time."""

    def fetch(rank: int) -> tuple[list[str], LoadmasterError]:
        digests: list[str] = []
        options = {"run": run, "framework": "numpy", "timeout_s": 30.0}
        stream = loadmaster.connect(cluster.url, rank=rank, world_size=RANKS, **options)
        with stream, pytest.raises(LoadmasterError) as caught:
            digests.extend(batch.digest() for batch in stream)
        return digests, caught.value

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(fetch, range(RANKS)))


def status_of(cluster: LocalCluster, run: str) -> str:
    """The lines of `loadmaster status` on a run."""
    done = subprocess.run(
        loadmaster_command("status", cluster.url), capture_output=True, text=True, timeout=30, check=True
    )
    lines = done.stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{run} "))
    return "\n".join(itertools.takewhile(lambda line: line == lines[start] or line.startswith(" "), lines[start:]))


@pytest.mark.processes
def test_run_when_too_many_rows_are_bad_then_pauses_and_all_are_told_why(
    own_files: OwnFiles, cluster: LocalCluster
) -> None:
    rows = json_lines(map(sentence, range(100))) + b'{"text": "\xff"}\n' * 30
    spec, manifests = own_files.freeze(rows)
    expected: list[list[str]] = []
    with EmbeddedRun(spec, manifests, dp=RANKS) as run, pytest.raises(RunPausedError, match="own: 20 of the last"):
        expected.extend([record_digest(built[rank]) for rank in range(RANKS)] for _plan, built in run)
    assert expected
    cluster.create_run(spec, manifests)
    ends = ends_of(cluster, own_files.run)
    assert [list(step) for step in zip(*(digests for digests, _ in ends), strict=True)] == expected
    for _, error in ends:
        assert isinstance(error, RunPausedError)
        assert re.search("source own: 20 of the last [0-9]+ rows are bad.*invalid UTF-8 .*max_bad_ratio", error.message)
    status = status_of(cluster, own_files.run)
    assert re.search("train  paused: source own: 20 of the last .*max_bad_ratio is 0.01: repair", status)


@pytest.mark.processes
def test_run_when_a_whole_epoch_is_left_out_then_all_are_told_why(own_files: OwnFiles, cluster: LocalCluster) -> None:
    long_rows = json_lines("the loader reads every manifest " * 50 for _ in range(5))
    spec, manifests = own_files.freeze(long_rows, batch={"over_long": "skip"})
    with pytest.raises(DataError, match="source own, epoch 0: every row") as told, EmbeddedRun(spec, manifests) as run:
        list(run)
    assert re.search("longer than 256 tokens.*; repair the source, or check sources.own.transform", told.value.message)
    cluster.create_run(spec, manifests)
    way_on = f"once that is put right: loadmaster resume {cluster.url} --run {own_files.run}"
    told_ranks = [(type(error), error.message) for _, error in ends_of(cluster, own_files.run)]
    assert told_ranks == [(DataError, f"{told.value.message}; {way_on}")] * RANKS
    assert f"train  failed: {told.value.message}" in status_of(cluster, own_files.run)


def _rewrite(own: OwnFiles) -> str:
    content = (own.folder / "2.jsonl").read_bytes()
    (own.folder / "2.jsonl").write_bytes(content.replace(b"loader", b"LOADER"))
    return r"source own: .*/2\.jsonl must not change while a run uses it"


def _remove(own: OwnFiles) -> str:
    (own.folder / "2.jsonl").unlink()
    return r"source own: .*/2\.jsonl was frozen into the run and is missing now; put it back"


def _retrain(own: OwnFiles) -> str:
    own.tokenizer.write_bytes(own.tokenizer.read_bytes().replace(b"<|im_end|>", b"<|im_ond|>"))
    return r"source '?(own|sound)'?: transform or tokenizer changed since the run was created"


def _drop_tokenizer(own: OwnFiles) -> str:
    own.tokenizer.unlink()
    return r"tokenizer: must be a readable tokenizer.json, got .*: No such file"


@pytest.mark.processes
@pytest.mark.parametrize("change", [_rewrite, _remove, _retrain, _drop_tokenizer])
def test_run_when_its_files_changed_since_it_was_created_then_refused(
    change: Callable[[OwnFiles], str], own_files: OwnFiles, cluster: LocalCluster
) -> None:
    spec, manifests = own_files.freeze(json_lines(map(sentence, range(50))))
    cluster.create_run(spec, manifests)
    rule = change(own_files)
    for _, error in ends_of(cluster, own_files.run):
        assert not error.retry
        assert re.search(rule, error.message)
    assert re.search("train  failed: .*" + rule, status_of(cluster, own_files.run))


@pytest.mark.processes
def test_file_when_deleted_under_a_run_then_named_and_the_run_goes_on_when_it_is_back(
    own_files: OwnFiles, cluster: LocalCluster
) -> None:
    spec, manifests = own_files.freeze(json_lines(map(sentence, range(1500))))
    with EmbeddedRun(spec, manifests) as run:
        expected = [record_digest(built[0]) for _plan, built in itertools.islice(run, 60)]
    cluster.create_run(spec, manifests)
    paths = sorted(own_files.folder.glob("*.jsonl"))
    options = {"run": own_files.run, "framework": "numpy", "timeout_s": 3.0}
    with loadmaster.connect(cluster.url, rank=0, world_size=1, **options) as stream:
        digests, _told = fetch_patiently(stream, until=lambda digests, told: len(digests) == 1)
        for path in paths:
            path.rename(path.with_suffix(".away"))
        named = re.compile(r"rank 0: step \d+ .*source own, shard \d.*cannot be read")
        more, _told = fetch_patiently(stream, until=lambda digests, told: any(map(named.search, told)))
        assert re.search(r"train  open: .*source own, shard \d", status_of(cluster, own_files.run))
        for path in paths:
            path.with_suffix(".away").rename(path)
        digests += more
        num_left = len(expected) - len(digests)
        assert num_left > 0
        rest, _told = fetch_patiently(stream, until=lambda digests, told: len(digests) == num_left)
    assert [*digests, *rest] == expected


def fetch_patiently(stream: Any, *, until: Callable[[list[str], list[str]], bool]) -> tuple[list[str], list[str]]:
    """Digests of the next steps, and what the deadlines that passed meanwhile have told."""
    digests: list[str] = []
    told: list[str] = []
    give_up_s = time.monotonic() + 60
    while not until(digests, told):
        assert time.monotonic() < give_up_s, told[-1:]
        try:
            digests.append(next(stream).digest())
        except DeadlineError as error:
            told.append(error.message)
    return digests, told


@pytest.mark.processes
def test_file_when_rewritten_under_a_run_then_the_run_fails_and_names_it(
    own_files: OwnFiles, cluster: LocalCluster
) -> None:
    """With as many bytes as before: other tokens must not take the place of what was planned."""
    spec, manifests = own_files.freeze(json_lines(map(sentence, range(1500))))
    cluster.create_run(spec, manifests)
    options = {"run": own_files.run, "framework": "numpy", "timeout_s": 30.0}
    with loadmaster.connect(cluster.url, rank=0, world_size=1, **options) as stream:
        next(stream)
        rule = _rewrite(own_files)
        with pytest.raises(SourceError, match=rule):
            list(itertools.islice(stream, 2000))
    assert re.search("train  failed: .*" + rule, status_of(cluster, own_files.run))
