"""Samples of a source in the run's own order, transformed as the run would, and as a person or a program reads them.

# n = tokens of one sample
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.text import Text

from loadmaster_flight.sources.lanes import LaneReader, LaneRows
from loadmaster_flight.sources.reader import SourceReader
from loadmaster_flight.spec import SourceManifest
from loadmaster_flight.transforms import Measured, Transform
from loadmaster_flight.wire.schemas import Verdict

MAX_CHARS = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a sample; `digest` is the SHA-256 (hex) of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedSample:
    """One row of a source.

    Attributes:
        num_tokens: None where there is no tokenizer, so that the row is shown as it is.
        text: For people: tokens decoded, targets of the loss in their own style.
    """

    source: str
    uri: str
    shard: int
    block: int
    pos: int
    row: int
    lane: int
    verdict: Verdict
    reason: str | None
    num_tokens: int | None
    fields: tuple[Field, ...]
    text: Text

    def to_line(self) -> str:
        """One line of JSON."""
        names = ("source", "uri", "shard", "block", "pos", "row", "lane", "reason", "num_tokens")
        tree: dict[str, Any] = {name: getattr(self, name) for name in names}
        tree["verdict"] = self.verdict.name.lower()
        tree["fields"] = [
            {"name": f.name, "dtype": f.dtype, "shape": list(f.shape), "digest": f.digest} for f in self.fields
        ]
        return json.dumps(tree)


def rows_in_run_order(reader: SourceReader, manifest: SourceManifest, seed: int) -> Iterator[tuple[int, LaneRows]]:
    """Rows of epoch 0 one by one, with their lane: round robin over the lanes that have rows left, lane 0 first."""
    lanes = {lane: LaneReader(reader, manifest, seed, 0, [lane, 0, 0, 0]) for lane in range(manifest.lanes)}
    while lanes:
        for lane, lane_reader in list(lanes.items()):
            rows = lane_reader.next_rows(1)
            if rows is None:
                del lanes[lane]
            else:
                yield lane, rows


def transformed(lane: int, rows: LaneRows, manifest: SourceManifest, transform: Transform) -> PeekedSample:
    """Measure one row with the run's transform."""
    measured = transform.measure(rows.block_data, rows.rows)
    tokens_n = measured.row_tokens(0)
    return PeekedSample(
        **_place(lane, rows, manifest),
        verdict=Verdict(int(measured.verdict[0])),
        reason=measured.reason[0],
        num_tokens=len(tokens_n),
        fields=_fields_of(measured),
        text=_decoded(measured, transform),
    )


def untransformed(lane: int, rows: LaneRows, manifest: SourceManifest) -> PeekedSample:
    """One row as the file has it."""
    row = rows.block_data.row(int(rows.rows[0]))
    values = row if isinstance(row, dict) else {}
    return PeekedSample(
        **_place(lane, rows, manifest),
        verdict=Verdict.OK if isinstance(row, dict) else Verdict.BAD,
        reason=None if isinstance(row, dict) else row.reason,
        num_tokens=None,
        fields=tuple(_field_of_value(name, value) for name, value in values.items()),
        text=Text("\n".join(f"{name}: {_shortened(str(value))}" for name, value in values.items())),
    )


def _place(lane: int, rows: LaneRows, manifest: SourceManifest) -> dict[str, Any]:
    return {
        "source": manifest.name,
        "uri": manifest.shards[rows.shard].uri,
        "shard": rows.shard,
        "block": rows.block,
        "pos": rows.pos_start,
        "row": int(rows.rows[0]),
        "lane": lane,
    }


def _fields_of(measured: Measured) -> tuple[Field, ...]:
    if measured.verdict[0] != Verdict.OK:
        return ()
    fields = [_array_field("tokens", measured.row_tokens(0))]
    spans = measured.loss_spans[0] if measured.loss_spans is not None else None
    return (*fields, _array_field("loss_spans", spans)) if spans is not None else tuple(fields)


def _array_field(name: str, array: np.ndarray) -> Field:
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return Field(name=name, dtype=str(array.dtype), shape=array.shape, digest=digest)


def _field_of_value(name: str, value: object) -> Field:
    """A raw value: bytes and text by length; lists of numbers as arrays; anything else by its JSON."""
    if isinstance(value, (list, np.ndarray)) and len(value) and np.asarray(value, dtype=object).ndim == 1:
        array = np.asarray(value)
        if array.dtype.kind in "iufb":
            return _array_field(name, array)
    is_text = isinstance(value, str)
    data = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass") if is_text else _json(value)
    dtype = "bytes" if isinstance(value, bytes) else "string" if is_text else "json"
    return Field(name=name, dtype=dtype, shape=(len(data),), digest=hashlib.sha256(data).hexdigest())


def _json(value: object) -> bytes:
    return json.dumps(value, default=str, sort_keys=True).encode()


def _decoded(measured: Measured, transform: Transform) -> Text:
    """Tokens as text; where only some count for the loss, those in green."""
    tokens_n = measured.row_tokens(0)
    whole = transform.decode(tokens_n)
    spans = measured.loss_spans[0] if measured.loss_spans is not None else None
    if whole is None:
        return Text(_shortened(" ".join(map(str, tokens_n.tolist()))))
    if spans is None:
        return Text(_shortened(whole))
    text, at = Text(), 0
    for start, stop in spans.reshape(-1, 2).tolist():
        text.append(transform.decode(tokens_n[at:start]) or "", "dim")
        text.append(transform.decode(tokens_n[start:stop]) or "", "green")
        at = stop
    text.append(transform.decode(tokens_n[at:]) or "", "dim")
    text.truncate(MAX_CHARS, overflow="ellipsis")
    return text


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ... ({len(text):,} characters)"
