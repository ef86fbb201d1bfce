"""Metadata rows with loss spans: what of a sample counts as a target."""

from __future__ import annotations

import pyarrow as pa

from loadmaster_flight.wire.schemas import METADATA
from loadmaster_server.planning.rows import VALID, tables_of


def _batch(spans: list[list[int] | None], *, num_tokens: int) -> pa.RecordBatch:
    fixed = {"reason": None, "verdict": 0, "num_tokens": num_tokens, "image_patches": None}
    columns = [
        pa.array(spans if f.name == "loss_spans" else [fixed.get(f.name, 0)] * len(spans), f.type) for f in METADATA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=METADATA)


def test_tables_of_when_rows_have_spans_then_only_their_targets_are_valid() -> None:
    batch = _batch([[2, 5, 7, 9], None, [0, 1]], num_tokens=10)
    [(_source, table)] = tables_of(batch)
    assert table.values_NF[:, VALID].tolist() == [5, 9, 0]
