"""`loadmaster export`: what is written, read back by other means, is what ranks receive."""

from __future__ import annotations

import importlib
import itertools
import json
import struct
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import loadmaster
from loadmaster.batch import Batch, Microbatch
from loadmaster_flight.sources.inventory import freeze_source
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import SourceSpec, load_run_spec
from loadmaster_flight.wire.control import StreamView
from loadmaster_flight.wire.errors import BadRequestError, NotReadyError
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_server.cli.export import main
from loadmaster_server.exporting import ExportFormat, MdsWriter, PlannedSteps, SpecSteps, StepRange, export_steps
from loadmaster_server.freezing import freeze_run
from support.commands import wait_until
from support.media_runs import VISION

DP2 = ["--mesh", "dp=2"]
COLUMNS = ("step", "microbatch", "tokens", "labels", "cu_seqlens", "sample_ids", "global_valid_tokens")
MakeRun = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def received(target: str | Path, first: int, last: int, *, world_size: int = 2) -> list[list[Batch]]:
    """What all ranks get of the steps in [first, last): one list a step."""

    def fetch(rank: int) -> list[Batch]:
        with loadmaster.connect(str(target), rank=rank, world_size=world_size, framework="numpy") as stream:
            return list(itertools.islice(stream, last))[first:]

    with ThreadPoolExecutor(world_size) as pool:
        return [list(step) for step in zip(*pool.map(fetch, range(world_size)), strict=True)]


def in_order(steps: list[list[Batch]]) -> Iterator[tuple[int, Batch, Microbatch]]:
    """Number in its step, batch and microbatch, in the order of an export."""
    for ranks in steps:
        pairs = [(batch, microbatch) for batch in ranks for microbatch in batch.microbatches()]
        yield from ((number, batch, microbatch) for number, (batch, microbatch) in enumerate(pairs))


def mds_rows(folder: Path) -> list[dict[str, Any]]:
    """All samples of an MDS folder, by Loadmaster's own reader."""
    spec = SourceSpec.model_validate({"uri": str(folder), "format": "mds", "transform": {"tokens": "tokens"}})
    manifest = freeze_source("out", 0, spec, base_dir=folder, shuffle_bytes=1 << 26, fingerprint="")
    rows = []
    with SourceReader(manifest, spec) as reader:
        for shard in range(len(manifest.shards)):
            for number in range(reader.num_blocks(shard)):
                block = reader.read_block(shard, number)
                found = {name: block.column(name, np.arange(block.num_rows)) for name in COLUMNS}
                rows += [{name: found[name][i] for name in COLUMNS} for i in range(block.num_rows)]
    return rows


def planned_of(url: str) -> int:
    """Exclusive bound of the steps that a planner has planned of the run."""
    with closing(PlannerClient(url)) as client:
        return client.get("/runs/small/streams/train", StreamView).planned


def assert_same(rows: list[dict[str, Any]], steps: list[list[Batch]]) -> None:
    wanted = list(in_order(steps))
    assert len(rows) == len(wanted)
    for row, (number, batch, microbatch) in zip(rows, wanted, strict=True):
        assert (row["step"], row["microbatch"]) == (batch.step, number)
        assert row["global_valid_tokens"] == batch.global_valid_tokens
        assert row["sample_ids"] == microbatch.documents.sample_ids(batch.source_names)
        for name in ("tokens", "labels", "cu_seqlens"):
            assert row[name].tobytes() == getattr(microbatch, name).tobytes()


def sequences_of(steps: list[list[Batch]]) -> list[list[list[int]]]:
    """Documents without padding, by microbatch."""
    return [
        [
            np.asarray(m.tokens)[start : start + num].tolist()
            for start, num in zip(m.cu_seqlens.tolist(), m.documents.num_tokens.tolist(), strict=False)
        ]
        for _, _, m in in_order(steps)
    ]


def read_index(prefix: Path) -> tuple[np.dtype[Any], list[list[int]], list[int]]:
    """Type, sequences and document indices, by the rules of the format alone."""
    data = prefix.with_suffix(".idx").read_bytes()
    assert data[:9] == b"MMIDIDX\x00\x00"
    version, code, num, num_ends = struct.unpack_from("<QBQQ", data, 9)
    assert version == 1
    at = 34
    lengths = np.frombuffer(data, "<i4", num, at)
    pointers = np.frombuffer(data, "<i8", num, at + 4 * num)
    ends = np.frombuffer(data, "<i8", num_ends, at + 12 * num)
    assert len(data) == at + 12 * num + 8 * num_ends
    dtype = np.dtype({4: "<i4", 8: "<u2"}[code])
    tokens = prefix.with_suffix(".bin").read_bytes()
    assert len(tokens) == int(lengths.sum()) * dtype.itemsize
    sequences = [np.frombuffer(tokens, dtype, n, p).tolist() for n, p in zip(lengths, pointers.tolist(), strict=True)]
    return dtype, sequences, ends.tolist()


def test_mds_when_a_spec_is_exported_then_rows_are_what_ranks_receive(make_run: MakeRun, tmp_path: Path) -> None:
    path = make_run(until={"steps": 12})
    assert main([str(path), str(tmp_path / "out"), "--steps", "3:7", "--format", "mds", *DP2]) == 0
    assert_same(mds_rows(tmp_path / "out"), received(path, 3, 7))


@pytest.mark.parametrize("layout", ["concat", "pad"])
def test_mds_when_layout_differs_then_rows_are_what_ranks_receive(
    make_run: MakeRun, tmp_path: Path, layout: str
) -> None:
    batch = {"seq_len": 128, "microbatches": 4, "align": 16, "layout": layout, "rows": 4 if layout == "pad" else 1}
    path = make_run(batch=batch)
    assert main([str(path), str(tmp_path / "out"), "--steps", ":2", "--format", "mds", *DP2]) == 0
    assert_same(mds_rows(tmp_path / "out"), received(path, 0, 2))


def test_mds_when_shards_are_small_then_samples_go_on_in_the_next(make_run: MakeRun, tmp_path: Path) -> None:
    path = make_run()
    writer_folder = tmp_path / "small"
    writer_folder.mkdir()
    writer = MdsWriter(writer_folder, shard_bytes=8_000)
    steps = received(path, 0, 2)
    for number, batch, microbatch in in_order(steps):
        writer.add(batch, microbatch, number)
    told = writer.close()
    shards = sorted(writer_folder.glob("*.mds"))
    assert told["shards"] == len(shards) > 2
    assert max(shard.stat().st_size for shard in shards) <= 8_000
    assert_same(mds_rows(writer_folder), steps)


def test_mds_when_it_is_a_source_then_a_run_reads_it(make_run: MakeRun, tmp_path: Path) -> None:
    assert main([str(make_run()), str(tmp_path / "out"), "--steps", "0:2", "--format", "mds"]) == 0
    source = {"uri": "out", "format": "mds", "transform": {"tokens": "tokens", "eos": False}}
    spec = {"run": "again", "vocab_size": 320, "sources": {"out": source}}
    spec |= {"batch": {"seq_len": 256, "microbatches": 16}, "until": {"epochs": 1}}
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(spec))
    read = [m.tokens.tobytes() for _, _, m in in_order(received(tmp_path / "again.yaml", 0, 9, world_size=1))]
    assert sorted(read) == sorted(row["tokens"].tobytes() for row in mds_rows(tmp_path / "out"))


def test_megatron_when_a_spec_is_exported_then_sequences_are_its_documents(make_run: MakeRun, tmp_path: Path) -> None:
    path = make_run()
    assert main([str(path), str(tmp_path / "out"), "--steps", "2:5", "--format", "megatron", *DP2]) == 0
    wanted = sequences_of(received(path, 2, 5))
    dtype, sequences, ends = read_index(tmp_path / "out" / "tokens")
    assert dtype.itemsize == 4
    assert sequences == [sequence for microbatch in wanted for sequence in microbatch]
    assert ends == [0, *itertools.accumulate(map(len, wanted))]


def test_megatron_when_ids_are_small_then_two_bytes_and_its_own_reader_agrees(
    make_run: MakeRun, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reason = "megatron-core is not installed (requirements/peers.txt)"
        pytest.importorskip("megatron.core", reason=reason)
        indexed = importlib.import_module("megatron.core.datasets.indexed_dataset")
    path = make_run(vocab_size=1000)
    assert main([str(path), str(tmp_path / "out"), "--steps", "0:3", "--format", "megatron"]) == 0
    dtype, sequences, ends = read_index(tmp_path / "out" / "tokens")
    dataset = indexed.IndexedDataset(str(tmp_path / "out" / "tokens"))
    assert dtype.itemsize == 2
    assert [dataset[i].tolist() for i in range(len(dataset))] == sequences
    assert dataset.document_indices.tolist() == ends
    del dataset


@pytest.mark.processes
def test_planned_steps_when_a_cluster_serves_them_then_bytes_are_what_ranks_received(
    frozen: Callable[..., Any], start_cluster: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budgets = {"plan_ahead": 12, "bind_ahead": 4, "build_ahead": 2}
    cluster = start_cluster(*frozen(budgets=budgets, until={"steps": 40}), loaders=2)
    received(cluster.url, 0, 6)
    wait_until(lambda: planned_of(cluster.url) >= 14, timeout_s=60, what="12 steps to be planned ahead")
    for kind in ExportFormat:
        capsys.readouterr()
        argv = [cluster.url, str(tmp_path / kind), "--steps", "2:14", "--format", kind.value, "--json"]
        assert main(argv) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["steps"] == [2, 14]
        assert 6 <= report["bound"] < 14
    served = received(cluster.url, 0, 14)[2:]
    assert_same(mds_rows(tmp_path / "mds"), served)
    documents = [sequence for microbatch in sequences_of(served) for sequence in microbatch]
    assert read_index(tmp_path / "megatron" / "tokens")[1] == documents


@pytest.mark.processes
def test_planned_steps_when_not_there_then_the_error_says_which_are(
    frozen: Callable[..., Any], start_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    cluster = start_cluster(*frozen(budgets={"plan_ahead": 12, "bind_ahead": 4}, until={"steps": 40}))

    def take(first: int, last: int) -> None:
        options = {"stream": "train", "state_dir": tmp_path / "state", "timeout_s": 10}
        with closing(PlannedSteps(cluster.url, "small", **options)) as source:
            export_steps(source, StepRange(first=first, last=last), tmp_path / "out", ExportFormat.MDS)

    with pytest.raises(NotReadyError, match="small/train has not begun, no rank has joined yet"):
        take(0, 2)
    received(cluster.url, 0, 3)
    with pytest.raises(NotReadyError, match=r"step \d+ of small/train is not planned yet: ask for steps up to \d+"):
        take(0, 39)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_report_when_written_then_names_steps_counts_and_digests(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_run(until={"steps": 5})
    assert main([str(path), str(tmp_path / "out"), "--steps", "3:9", "--format", "mds"]) == 0
    text = capsys.readouterr().out
    assert "small/train steps 3 to 4 are in" in text
    assert "the stream ends before step 5" in text
    notes = json.loads((tmp_path / "out" / "export.json").read_text())
    steps = received(path, 3, 5, world_size=1)
    assert (notes["steps"], notes["num_microbatches"], notes["bound"]) == ([3, 5], 16, None)
    assert notes["num_tokens"] == sum(batch.num_tokens for ranks in steps for batch in ranks)
    assert list(notes["digests"]) == ["3", "4"]


REFUSED = [
    (["0:2", "--name", "other"], "--name must be the spec's 'small', got 'other'"),
    (["0:2", "--stream", "nope"], "stream must be one of ['train'], got 'nope'"),
    (["0:2", "--mesh", "dp=3"], "dp must divide microbatches, got dp 3 and 8 microbatches in train"),
    (["7:9"], "steps must be some that small/train has, it ends before step 7"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_export_when_it_cannot_be_then_says_why_and_leaves_nothing(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    path = make_run(until={"steps": 5})
    assert main([str(path), str(tmp_path / "out"), "--format", "mds", "--steps", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_export_when_out_holds_files_then_they_stay(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    assert main([str(make_run()), str(tmp_path / "out"), "--steps", "0:1", "--format", "mds"]) == 2
    assert "OUT must be a new or an empty folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.parametrize("text", ["3", "5:5", "6:2", "-1:4", "a:b", "3:"])
def test_steps_when_no_range_then_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a:b with whole numbers a < b"):
        StepRange.parse(text)


def test_export_when_the_run_has_media_then_refused(make_run: MakeRun, tmp_path: Path) -> None:
    spec = load_run_spec(make_run(media={"vision": VISION}))
    with pytest.raises(BadRequestError, match="media must be none to export a run, got vision"):
        SpecSteps(spec, freeze_run(spec), stream="train", mesh=None, state_dir=tmp_path)
