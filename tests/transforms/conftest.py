"""A block of plain Python rows, and transforms built from a few keywords."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.sources.blocks import Int64Array, RowFault
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.transforms import Measured, Transform, build_transform


@dataclass(frozen=True, slots=True)
class ListBlock:
    """A `Block` over rows in a list."""

    rows: list[Any]

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def size_bytes(self) -> int:
        return 64 * len(self.rows)

    def column(self, path: str, rows: Int64Array) -> list[object]:
        return [self._value(self.rows[i], path) for i in rows]

    def row(self, index: int) -> dict[str, Any] | RowFault:
        return self.rows[index]

    def _value(self, row: Any, path: str) -> object:
        for part in path.split("."):
            if isinstance(row, RowFault) or row is None:
                return row
            row = row.get(part)
        return row


BuildFactory = Callable[..., Transform]
MeasureFactory = Callable[..., Measured]


@pytest.fixture
def build(tokenizer_file: Path) -> BuildFactory:
    """Builds the transform of one source: a text column, or text=None for none; `run` are fields of the run."""

    def make(*, run: dict[str, Any] | None = None, **transform: Any) -> Transform:
        if not {"text", "messages", "tokens", "function"} & set(transform):
            transform["text"] = "text"
        transform = {name: value for name, value in transform.items() if value is not None}
        source = {"uri": "data/*.jsonl", "transform": transform}
        tree = {
            "run": "test",
            "tokenizer": str(tokenizer_file),
            "sources": {"web": source},
            "mixture": {"weights": {"web": 1}},
            "batch": {"seq_len": 256, "microbatches": 1},
        }
        return build_transform(RunSpec.model_validate(tree | (run or {})), "web")

    return make


@pytest.fixture
def measure(build: BuildFactory) -> MeasureFactory:
    """Measures values of the column `text`, in order."""

    def make(*values: object, **transform: Any) -> Measured:
        column = next((transform[k] for k in ("text", "messages", "tokens") if k in transform), "text")
        rows = [value if isinstance(value, RowFault) else {column: value} for value in values]
        return build(**transform).measure(ListBlock(rows), np.arange(len(rows)))

    return make
