"""Wire batches packed by hand, one token at a time: what assembling must come to, without its code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from loadmaster.batch import Batch, to_batch
from loadmaster.tensors import Framework
from loadmaster_flight.wire.schemas import batch_schema

DOC_FIELDS = ("source", "shard", "block", "row", "epoch", "first_token", "num_tokens")


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of a document; `goes_on` is the sample's next token where it was cut behind them."""

    tokens: list[int]
    goes_on: int | None = None

    @property
    def labels(self) -> list[int]:
        return [*self.tokens[1:], -100 if self.goes_on is None else self.goes_on]


def packed_record(microbatches: list[list[Piece]], *, seq_len: int, align: int = 1) -> pa.RecordBatch:
    """One row a microbatch: its documents in order, each padded to `align`, and a masked tail."""
    schema = batch_schema(seq_len=seq_len)
    rows = [_row(pieces, seq_len, align) for pieces in microbatches]
    columns: dict[str, pa.Array] = {}
    for name in ("tokens", "labels"):
        flat = pa.array(np.concatenate([row[name] for row in rows]), pa.int32())
        storage = pa.FixedSizeListArray.from_arrays(flat, seq_len)
        columns[name] = pa.ExtensionArray.from_storage(schema.field(name).type, storage)
    columns["cu_seqlens"] = pa.array([row["cu_seqlens"] for row in rows], schema.field("cu_seqlens").type)
    for name in DOC_FIELDS:
        docs = [[len(p.tokens) if name == "num_tokens" else 0 for p in pieces] for pieces in microbatches]
        columns[f"doc_{name}"] = pa.array(docs, schema.field(f"doc_{name}").type)
    num_valid = sum(label != -100 for pieces in microbatches for p in pieces for label in p.labels)
    columns["global_valid_tokens"] = pa.array([num_valid] * len(rows), pa.int64())
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def packed_batch(record: pa.RecordBatch, *, framework: Framework = Framework.TORCH) -> Batch:
    return to_batch(record, step=0, source_names=["prose"], num_rows=1, framework=framework)


def _row(pieces: list[Piece], seq_len: int, align: int) -> dict[str, list[int]]:
    tokens: list[int] = []
    labels: list[int] = []
    bounds = [0]
    for piece in pieces:
        padding = -len(piece.tokens) % align
        tokens += piece.tokens + [0] * padding
        labels += piece.labels + [-100] * padding
        bounds.append(len(tokens))
    tail = seq_len - len(tokens)
    bounds += [seq_len] * (tail > 0)
    return {"tokens": tokens + [0] * tail, "labels": labels + [-100] * tail, "cu_seqlens": bounds}
