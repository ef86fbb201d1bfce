"""Metadata of endless made-up sources, as fast as it can be read: stands in for loaders in planning benchmarks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.schemas import METADATA
from loadmaster_server.planning import Demand

Lengths = Callable[[np.random.Generator, int], npt.NDArray[np.int64]]
BLOCK_ROWS = 4096
_KNOWN_LENGTHS = 1 << 20


def lognormal(mean: float, sigma: float = 1.2, longest: int = 131_072) -> Lengths:
    """Lengths of web documents."""

    def draw(rng: np.random.Generator, num: int) -> npt.NDArray[np.int64]:
        return np.clip(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, num), 1, longest).astype(np.int64)

    return draw


def pareto(shape: float = 1.15, least: float = 400.0, longest: int = 131_072) -> Lengths:
    """Lengths with a heavy tail: books beside web pages."""

    def draw(rng: np.random.Generator, num: int) -> npt.NDArray[np.int64]:
        return np.minimum(least * (1 - rng.random(num)) ** (-1 / shape), longest).astype(np.int64)

    return draw


def bimodal(rng: np.random.Generator, num: int) -> npt.NDArray[np.int64]:
    """Short texts, and texts with an image."""
    short, long = rng.lognormal(np.log(250), 0.8, num), rng.normal(2600, 600, num)
    return np.clip(np.where(rng.random(num) < 0.5, short, long), 1, 24_000).astype(np.int64)


class MetadataSource:
    """One endless source: lane l holds blocks l, l + L, ... of BLOCK_ROWS rows; row i of a lane has a fixed length."""

    def __init__(self, number: int, lengths: Lengths, lanes: int) -> None:
        self._number, self.lanes = number, lanes
        self._lengths_N = lengths(np.random.default_rng(number), _KNOWN_LENGTHS)

    def answer(self, demand: Demand) -> pa.RecordBatch:
        """The rows that a loader would measure for `demand`, lane by lane."""
        parts = [self._lane(demand, cursor) for cursor in demand.cursors]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        num = len(columns["pos"])
        arrays = []
        for field in METADATA:
            if field.nullable:
                arrays.append(pa.nulls(num, field.type))
            else:
                arrays.append(pa.array(columns.get(field.name, np.zeros(num, np.int64)), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=METADATA)

    def _lane(self, demand: Demand, cursor: list[int]) -> dict[str, npt.NDArray[np.int64]]:
        lane, unit, _, pos = cursor
        index_N = unit * BLOCK_ROWS + pos + np.arange(demand.rows_per_lane)
        unit_N, pos_N = np.divmod(index_N, BLOCK_ROWS)
        at_N = (index_N * self.lanes + lane) % _KNOWN_LENGTHS
        return {
            "source": np.full(len(index_N), demand.source),
            "epoch": np.full(len(index_N), demand.epoch),
            "lane": np.full(len(index_N), lane),
            "unit_index": unit_N,
            "shard": unit_N * self.lanes + lane,
            "pos": pos_N,
            "row": pos_N,
            "num_tokens": self._lengths_N[at_N],
        }
