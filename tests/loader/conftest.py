"""Chunks made of arithmetic, so that every token says where it comes from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
import pytest

from loadmaster_flight.loader.chunk import Chunk, SpanTable
from loadmaster_flight.wire.schemas import Verdict


class ChunkFactory(Protocol):
    def __call__(
        self, start: int, lengths: list[int], *, bad: tuple[int, ...] = ..., spans: list[list[int] | None] | None = ...
    ) -> Chunk: ...


@pytest.fixture
def make_chunk() -> ChunkFactory:
    """Chunks at a position with rows of given lengths: token j of position p is 1000 * p + j, its row is 7 + p."""

    def make(
        start: int, lengths: list[int], *, bad: tuple[int, ...] = (), spans: list[list[int] | None] | None = None
    ) -> Chunk:
        kept = [0 if start + i in bad else n for i, n in enumerate(lengths)]
        tokens = [np.arange(n) + 1000 * (start + i) for i, n in enumerate(kept)]
        verdicts = [Verdict.BAD if start + i in bad else Verdict.OK for i in range(len(lengths))]
        reasons = tuple("broken" if v is Verdict.BAD else None for v in verdicts) if bad else None
        arrays = None if spans is None else [None if s is None else np.array(s, np.int32) for s in spans]
        return Chunk(
            pos=start,
            rows_N=np.arange(start, start + len(lengths)) + 7,
            verdict_N=np.array(verdicts, np.uint8),
            reasons=reasons,
            tokens_T=np.concatenate([np.zeros(0, np.int64), *tokens]).astype(np.int32),
            offsets=np.cumsum([0, *kept]).astype(np.int64),
            spans=SpanTable.from_lists(arrays, len(lengths)),
            row_bytes_N=np.array(kept, np.int64) * 4,
        )

    return make


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Wait for a condition, with a deadline."""

    def wait(condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
        until = time.monotonic() + deadline_s
        while not condition():
            assert time.monotonic() < until, f"{what} did not happen"
            threading.Event().wait(0.005)

    return wait
