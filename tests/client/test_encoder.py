"""Embeddings of images that other ranks encode: the gradients of a run are those of one process that does it all."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from loadmaster import encoder
from loadmaster.batch import Batch, Microbatch, to_batch
from loadmaster.tensors import Framework
from loadmaster_flight.constructor.slices import build_ranks, slot_at
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.errors import BadRequestError, MeshError
from loadmaster_flight.wire.schemas import MediaKind
from support import encoder_rank
from support.pictures import Doc, plan_of, sent, spec_of

IMAGE, VIDEO = MediaKind.IMAGE, MediaKind.VIDEO
SEQ_LEN = 128
Mesh = dict[str, int]
CASES: dict[str, tuple[Mesh, list[int]]] = {
    "dp2tp2": ({"pp": 1, "dp": 2, "cp": 1, "tp": 2}, [3, 0, 1, 2, 1]),
    "dp2cp2": ({"pp": 1, "dp": 2, "cp": 2, "tp": 1}, [0, 1, 1, 3]),  # rank 2 has dummies alone
    "dp4": ({"pp": 1, "dp": 4, "cp": 1, "tp": 1}, [2, 3, 0]),
    "pp2cp2": ({"pp": 2, "dp": 1, "cp": 2, "tp": 1}, [3, 2, 0, 1]),
    "tp-slowest": ({"tp": 2, "cp": 1, "pp": 1, "dp": 2}, [1, 3]),  # an order of its own
}
"""Meshes of four ranks, and those that encode."""


def documents(num_bins: int) -> list[Doc]:
    """Bins of one to three documents; the last bin has no picture, and its rank's microbatch nothing of its own."""
    docs = []
    for b, i in itertools.product(range(num_bins), range(3)):
        media = [((IMAGE, (1, 4 + 2 * (b % 3), 4)), (VIDEO, (1 + i, 2, 4))), ((IMAGE, (1, 2, 2)),), ()][(b + i) % 3]
        docs.append(Doc(bin=b, pos=3 * b + i, media=media if b + 1 < num_bins else (), text=2 + i))
    return docs


def records(
    mesh: Mesh, *, num_bins: int, ranks: list[int] | None, docs: list[Doc] | None = None
) -> dict[int, pa.RecordBatch]:
    """Each rank's batch; `ranks` encode, None: inline."""
    spec: RunSpec = spec_of(seq_len=SEQ_LEN, num_bins=num_bins, mesh={"stage_fields": {"labels": ["first", "last"]}})
    docs = documents(num_bins) if docs is None else docs
    plan = plan_of(docs, spec, dp=mesh["dp"], ranks=ranks)
    places = itertools.product(*(range(size) for size in mesh.values()))
    slot_of = {rank: slot_at(mesh, dict(zip(mesh, at, strict=True))) for rank, at in enumerate(places)}
    pieces = sent(plan, docs, spec, dp_ranks=range(mesh["dp"]), encoder_ranks=list(slot_of) if ranks else ())
    return build_ranks(plan, pieces, spec, mesh, slot_of)


def batch_of(record: pa.RecordBatch) -> Batch:
    return to_batch(record, step=0, source_names=["web"], num_rows=1, framework=Framework.TORCH)


def reference(num_bins: int) -> dict[str, Any]:
    """One process that encodes everything inline."""
    (record,) = records({"pp": 1, "dp": 1, "cp": 1, "tp": 1}, num_bins=num_bins, ranks=None).values()
    batch = batch_of(record)
    model = encoder_rank.model_of(batch)
    loss = encoder_rank.run(batch, model, None)
    return encoder_rank.result(loss, model)


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder a case of `CASES`, with what each of four processes got; they take one case after the other."""
    folder = tmp_path_factory.mktemp("exchanged")
    for name, (mesh, ranks) in CASES.items():
        (folder / name).mkdir()
        for rank, record in records(mesh, num_bins=4, ranks=ranks).items():
            with pa.ipc.new_stream(folder / name / f"{rank}.arrow", record.schema) as writer:
                writer.write_batch(record)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, encoder_rank.__file__, "4", str(folder), *CASES]
    processes = [
        subprocess.Popen([*argv[:2], str(rank), *argv[2:]], stdout=-1, stderr=-1, env=env) for rank in range(4)
    ]
    errors = [process.communicate(timeout=240)[1].decode()[-2000:] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors
    return folder


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_exchange_when_four_processes_encode_for_each_other_then_loss_and_gradients_are_those_of_one(
    name: str, exchanged: Path
) -> None:
    want = reference(4)
    for rank in range(4):
        got = json.loads((exchanged / name / f"{rank}.json").read_text())
        assert got["loss"] == pytest.approx(want["loss"], rel=1e-12)
        for parameter, gradient in want["gradients"].items():
            assert np.abs(gradient).max() > 1e-3
            np.testing.assert_allclose(got["gradients"][parameter], gradient, rtol=1e-9, atol=1e-12)


@pytest.fixture
def inline() -> list[Microbatch]:
    (record,) = records({"pp": 1, "dp": 1, "cp": 1, "tp": 1}, num_bins=2, ranks=None).values()
    return list(batch_of(record).microbatches())


def test_exchange_when_images_go_with_documents_then_nothing_is_sent_and_dummies_are_dropped(
    inline: list[Microbatch],
) -> None:
    full, empty = inline
    rows = torch.randn(sum(full.images.encoder_tokens), 5)
    assert encoder.exchange(rows, full, None) is rows
    assert encoder.exchange(torch.randn(1, 5), empty, None).shape == (0, 5)


def test_merge_when_a_rank_has_a_slice_then_all_slices_together_have_each_embedding_once() -> None:
    parts = records({"pp": 1, "dp": 1, "cp": 4, "tp": 1}, num_bins=1, ranks=None, docs=documents(2)[:3])
    found = []
    for record in parts.values():
        (microbatch,) = batch_of(record).microbatches()
        num = sum(microbatch.images.encoder_tokens)
        embeddings = torch.arange(1.0, num + 1).unsqueeze(1).expand(num, 3)
        merged = encoder.merge(torch.zeros(1, SEQ_LEN // 4, 3), embeddings, microbatch)
        assert merged.shape == (1, SEQ_LEN // 4, 3)
        is_placeholder = microbatch.tokens >= 900_000
        assert ((merged[0, :, 0] > 0) == is_placeholder).all()
        found += merged[0, :, 0][is_placeholder].tolist()
    assert sorted(found) == list(range(1, num + 1))


def test_merge_when_there_is_a_dummy_alone_then_tokens_stay_and_the_encoder_gets_zero_gradients(
    inline: list[Microbatch],
) -> None:
    embeddings = torch.full((1, 3), torch.inf, requires_grad=True)
    tokens = torch.randn(SEQ_LEN, 3, requires_grad=True)
    merged = encoder.merge(tokens, embeddings, inline[1])
    assert torch.equal(merged, tokens)
    merged.sum().backward()
    assert embeddings.grad.tolist() == [[0, 0, 0]]


def test_merge_when_dtypes_differ_then_that_of_the_tokens_stays(inline: list[Microbatch]) -> None:
    rows = torch.randn(sum(inline[0].images.encoder_tokens), 3)
    merged = encoder.merge(torch.zeros(SEQ_LEN, 3, dtype=torch.bfloat16), rows, inline[0])
    assert merged.dtype is torch.bfloat16
    start, _ = inline[0].images.own_tokens[0]
    assert torch.equal(merged[start], rows[0].to(torch.bfloat16))


def test_merge_when_rows_are_missing_then_the_error_says_how_many_there_must_be(inline: list[Microbatch]) -> None:
    with pytest.raises(BadRequestError, match=r"embeddings must be of shape \(\d+, size\) for the microbatch's own"):
        encoder.merge(torch.zeros(SEQ_LEN, 3), torch.zeros(2, 3), inline[0])
    with pytest.raises(BadRequestError, match=r"shape \(\d+, size\) for the images that this rank encodes"):
        encoder.exchange(torch.zeros(2, 3), inline[0], None)


def test_exchange_when_the_run_has_no_images_then_the_error_says_so(inline: list[Microbatch]) -> None:
    with pytest.raises(BadRequestError, match=r"must have images: the run has no media\.vision"):
        encoder.exchange(torch.zeros(1, 3), replace(inline[0], images=None), None)


def test_exchange_when_the_group_is_not_the_mesh_then_it_is_refused(tmp_path: Path) -> None:
    mesh = {"pp": 1, "dp": 2, "cp": 1, "tp": 1}
    microbatch = next(batch_of(records(mesh, num_bins=2, ranks=[0, 1])[1]).microbatches())
    rows = torch.zeros(sum(microbatch.images.encoder_tokens), 3)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with pytest.raises(MeshError, match="all 2 ranks of the mesh in order, with this one as 1: got 0 of 1"):
            encoder.exchange(rows, microbatch, torch.distributed.group.WORLD)
    finally:
        torch.distributed.destroy_process_group()
