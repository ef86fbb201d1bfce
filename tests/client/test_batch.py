"""Batches as numpy and as torch, and their digest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.batch import Batch, to_batch
from loadmaster.digest import record_digest
from loadmaster.tensors import Framework
from loadmaster_flight.wire.schemas import batch_schema

DOC_FIELDS = ("source", "shard", "block", "row", "epoch", "first_token", "num_tokens")
ROWS: list[dict[str, Any]] = [
    {
        "tokens": [5, 6, 7, 0, 8, 9, 0, 0],
        "labels": [6, 7, -100, -100, 9, -100, -100, -100],
        "cu_seqlens": [0, 4, 6, 8],
        "docs": [(0, 1, 2, 3, 0, 0, 3), (1, 0, 0, 4, 2, 64, 2)],
    },
    {"tokens": [0] * 8, "labels": [-100] * 8, "cu_seqlens": [0, 8], "docs": []},
]


def record_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    schema = batch_schema(seq_len=8)
    columns: dict[str, pa.Array] = {}
    for name in ("tokens", "labels"):
        flat = pa.array([v for row in rows for v in row[name]], pa.int32())
        columns[name] = pa.ExtensionArray.from_storage(
            schema.field(name).type, pa.FixedSizeListArray.from_arrays(flat, 8)
        )
    columns["cu_seqlens"] = pa.array([row["cu_seqlens"] for row in rows], schema.field("cu_seqlens").type)
    for i, name in enumerate(DOC_FIELDS):
        field = schema.field(f"doc_{name}")
        columns[field.name] = pa.array([[doc[i] for doc in row["docs"]] for row in rows], field.type)
    columns["global_valid_tokens"] = pa.array([12] * len(rows), pa.int64())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def over_the_wire(record: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, record.schema) as writer:
        writer.write_batch(record)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    def make(framework: Framework = Framework.NUMPY) -> Batch:
        return to_batch(record_of(ROWS), step=4, source_names=["prose", "code"], num_rows=1, framework=framework)

    return make


def test_batch_when_numpy_then_fields_are_int32_and_read_only(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch()
    assert (batch.tokens.dtype, batch.tokens.shape) == (np.int32, (2, 8))
    assert not batch.tokens.flags.writeable
    assert batch.labels.tolist() == [row["labels"] for row in ROWS]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7]]
    assert batch.loss_mask.tolist() == [[label != -100 for label in row["labels"]] for row in ROWS]


def test_batch_when_torch_then_cross_entropy_takes_it_as_it_is(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(Framework.TORCH)
    assert (batch.tokens.dtype, batch.labels.dtype, batch.position_ids.dtype) == (torch.int64,) * 3
    assert (batch.cu_seqlens[0].dtype, batch.loss_mask.dtype) == (torch.int32, torch.bool)
    logits = torch.nn.functional.one_hot(batch.tokens, 10).float()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")
    assert loss.isfinite()
    batch.tokens[0, 0] = 1  # the caller's own memory
    assert batch.record.column("tokens").to_numpy_ndarray()[0, 0] == 5


@pytest.mark.parametrize("framework", [Framework.NUMPY, Framework.TORCH])
def test_microbatches_when_iterated_then_they_are_the_rows(
    framework: Framework, make_batch: Callable[..., Batch]
) -> None:
    batch = make_batch(framework)
    found = list(batch.microbatches())
    assert [m.tokens.tolist() for m in found] == [row["tokens"] for row in ROWS]
    assert [m.cu_seqlens.tolist() for m in found] == [row["cu_seqlens"] for row in ROWS]
    assert [m.max_seqlen for m in found] == [4, 8]
    assert [m.loss_mask.sum().item() for m in found] == [3, 0]
    assert [len(m.documents) for m in found] == [2, 0]
    assert len(batch) == 2


def test_batch_when_asked_what_is_in_it_then_ids_and_counts_are_those_of_its_documents(
    make_batch: Callable[..., Batch],
) -> None:
    batch = make_batch()
    assert batch.sample_ids == ["prose/1/2/3@0", "code/0/0/4@2:64"]
    assert (batch.num_tokens, batch.global_valid_tokens, batch.step) == (5, 12, 4)


@given(tokens=st.lists(st.integers(0, 1 << 30), min_size=16, max_size=16))
def test_digest_when_content_is_equal_then_slicing_and_the_wire_make_no_difference(tokens: list[int]) -> None:
    rows = [{**ROWS[0], "tokens": tokens[:8]}, {**ROWS[0], "tokens": tokens[8:]}]
    record = record_of(rows)
    assert record_digest(over_the_wire(record)) == record_digest(record)
    assert record_digest(record.slice(1)) == record_digest(record_of(rows[1:]))


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": [5, 6, 7, 0, 8, 9, 0, 1]},
        {"labels": [-100] * 8},
        {"cu_seqlens": [0, 4, 8]},
        {"docs": ROWS[0]["docs"][:1]},
    ],
)
def test_digest_when_a_field_differs_then_the_digest_does(change: dict[str, Any]) -> None:
    assert record_digest(record_of([{**ROWS[0], **change}])) != record_digest(record_of(ROWS[:1]))


def test_digest_when_a_document_moves_to_another_microbatch_then_the_digest_differs() -> None:
    moved = [{**ROWS[0], "docs": ROWS[0]["docs"][:1]}, {**ROWS[1], "docs": ROWS[0]["docs"][1:]}]
    assert record_digest(record_of(moved)) != record_digest(record_of(ROWS))


def test_to_batch_when_the_bytes_are_not_aligned_then_arrays_are(make_batch: Callable[..., Batch]) -> None:
    record = record_of(ROWS)
    raw = record.column("tokens").storage.values.buffers()[1]
    shifted = pa.py_buffer(b"\0" + raw.to_pybytes()).slice(1)
    values = pa.Array.from_buffers(pa.int32(), 16, [None, shifted])
    storage = pa.FixedSizeListArray.from_arrays(values, 8)
    column = pa.ExtensionArray.from_storage(record.schema.field("tokens").type, storage)
    record = record.set_column(0, record.schema.field("tokens"), column)
    batch = to_batch(record, step=0, source_names=["prose", "code"], num_rows=1, framework=Framework.NUMPY)
    assert batch.tokens.flags.aligned
    assert batch.tokens.tolist() == make_batch().tokens.tolist()
