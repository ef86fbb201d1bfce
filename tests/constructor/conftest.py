"""Factories: a step's plan and the pieces that loaders would send for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from loadmaster_flight.wire.schemas import PIECES
from loadmaster_flight.wire.step_plan import Pieces, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """One document of a step. `goes_on`: the sample has tokens after this piece, so one more token is sent."""

    bin: int
    num_tokens: int
    pos: int
    source: int = 0
    first_token: int = 0
    goes_on: bool = False
    loss_spans: list[int] | None = None
    is_masked: bool = False

    @property
    def is_cut(self) -> bool:
        return self.goes_on or self.first_token > 0

    @property
    def tokens(self) -> list[int]:
        """What is sent; every token of a step is another number, never 0."""
        base = 1 + 100_000 * self.pos + self.first_token
        return list(range(base, base + self.num_tokens + self.goes_on))

    @property
    def labels(self) -> list[int]:
        """What the contract says of each token, one at a time."""
        return [self._label(j) for j in range(self.num_tokens)]

    def _label(self, j: int) -> int:
        if self.is_masked or j + 1 >= len(self.tokens):
            return -100
        spans = [0, 1 << 30] if self.loss_spans is None else self.loss_spans
        inside = any(start <= j + 1 < stop for start, stop in zip(spans[::2], spans[1::2], strict=True))
        return self.tokens[j + 1] if inside else -100

    @property
    def num_valid(self) -> int:
        return sum(label != -100 for label in self.labels)


def plan_of(docs: list[Doc], *, num_bins: int, seq_len: int, dp: int = 1, step: int = 0) -> StepPlan:
    columns = {name: [getattr(d, name) for d in docs] for name in ("source", "pos", "first_token", "bin")}
    columns |= {name: [0] * len(docs) for name in ("epoch", "lane", "shard", "block")}
    columns["num_tokens"] = [d.num_tokens if d.is_cut else -1 for d in docs]
    pieces = Pieces(**{name: np.array(values, np.int64) for name, values in columns.items()})
    return StepPlan(
        step=step,
        num_bins=num_bins,
        seq_len=seq_len,
        dp=dp,
        num_tokens=sum(d.num_tokens for d in docs),
        global_valid_tokens=sum(d.num_valid for d in docs if not d.is_masked),
        weights_S=np.array([1 << 30], np.int64),
        source_tokens_S=np.array([sum(d.num_tokens for d in docs)], np.int64),
        pieces=pieces.take(pieces.canonical_order()),
    ).with_digest()


def pieces_of(docs: list[Doc], *, step: int = 0) -> pa.RecordBatch:
    rows = [
        {
            "step": step,
            "bin": d.bin,
            "source": d.source,
            "epoch": 0,
            "shard": 0,
            "block": 0,
            "row": 1000 + d.pos,
            "pos": d.pos,
            "first_token": d.first_token,
            "num_tokens": d.num_tokens,
            "tokens": d.tokens,
            "loss_spans": d.loss_spans,
            "is_masked": d.is_masked,
        }
        for d in docs
    ]
    return pa.RecordBatch.from_pylist(rows, schema=PIECES)


@pytest.fixture(scope="session")
def make_doc() -> type[Doc]:
    return Doc


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., StepPlan]:
    return plan_of


@pytest.fixture(scope="session")
def make_pieces() -> Callable[..., pa.RecordBatch]:
    return pieces_of
