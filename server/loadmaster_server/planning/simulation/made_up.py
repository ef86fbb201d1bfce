"""Metadata of sources whose document lengths are stated, not read: endless, and the same on every machine.

# N = rows
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from loadmaster_flight.wire.schemas import METADATA

from ..cost import Int64Array
from ..demand import Demand
from .lengths import Lengths

BLOCK_ROWS = 4096
KNOWN_LENGTHS = 1 << 18
_STRIDE = 0x9E3779B1
"""Odd, so that lanes walk the known lengths in orders that differ."""


class StatedSource:
    """Lane l holds blocks l, l + L, ... of BLOCK_ROWS rows each; row i of a lane has a fixed length. Thread-safe."""

    def __init__(self, number: int, lengths: Lengths, lanes: int, *, seed: int) -> None:
        self.lanes = lanes
        self._known_N = lengths(np.random.default_rng([seed, number]), KNOWN_LENGTHS)

    def measure(self, demand: Demand) -> pa.RecordBatch:
        """The rows that a loader would measure for `demand`, lane by lane, schema METADATA."""
        parts = [self._rows(demand, cursor) for cursor in demand.cursors]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        num = len(columns["pos"])
        arrays = [
            pa.nulls(num, field.type)
            if field.nullable
            else pa.array(columns.get(field.name, np.zeros(num, np.int64)), field.type)
            for field in METADATA
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=METADATA)

    def _rows(self, demand: Demand, cursor: Sequence[int]) -> dict[str, Int64Array]:
        lane, unit, _, pos = cursor
        index_N = np.asarray(unit * BLOCK_ROWS + pos + np.arange(demand.rows_per_lane), np.int64)
        unit_N, pos_N = np.divmod(index_N, BLOCK_ROWS)
        at_N = ((index_N * self.lanes + lane) * _STRIDE) % KNOWN_LENGTHS
        return {
            "source": np.full_like(index_N, demand.source),
            "epoch": np.full_like(index_N, demand.epoch),
            "lane": np.full_like(index_N, lane),
            "unit_index": unit_N,
            "shard": unit_N * self.lanes + lane,
            "pos": pos_N,
            "row": pos_N,
            "num_tokens": self._known_N[at_N],
        }
