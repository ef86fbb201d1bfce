"""A stream's planning state after a step, and its bytes.

# S = sources, L = lanes
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from loadmaster_flight.wire.errors import BadRequestError

from .epoch_counts import EpochCounts
from .feed import SourceState
from .pieces import NUM_COLUMNS, PieceTable

MAGIC = b"LMPS"
VERSION = 2
_MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerState:
    """Everything that the steps from `step` on depend on, besides the run spec and the data.

    Attributes:
        step: Next step to plan.
        is_over: The final step has been planned.
        has_ended: Nothing is drawn any more; the queue is drained.
        credit_S: Shape (S,), 2**-30 units, sum to zero while sources are live.
        placed_tokens_S: Shape (S,), real tokens placed so far.
        queue: Drawn pieces that wait, oldest first.
    """

    step: int
    is_over: bool
    has_ended: bool
    credit_S: tuple[int, ...]
    placed_tokens_S: tuple[int, ...]
    sources: tuple[SourceState, ...]
    queue: PieceTable

    @staticmethod
    def start(lanes: list[int]) -> PlannerState:
        """The state before step 0, from the number of lanes of each source."""
        return PlannerState(
            step=0,
            is_over=False,
            has_ended=False,
            credit_S=(0,) * len(lanes),
            placed_tokens_S=(0,) * len(lanes),
            sources=tuple(SourceState.start(num) for num in lanes),
            queue=PieceTable.empty(),
        )

    def to_bytes(self) -> bytes:
        """Magic, version, length and zstd-compressed JSON; equal states have equal bytes."""
        tree = {name: getattr(self, name) for name in ("step", "is_over", "has_ended", "credit_S", "placed_tokens_S")}
        tree["sources"] = [_source_tree(source) for source in self.sources]
        tree["queue"] = self.queue.values_NP.tolist()
        tree["spans"] = {str(i): s.tolist() for i, s in enumerate(self.queue.spans_N) if s is not None}
        text = json.dumps(tree, separators=(",", ":")).encode()
        packed = pa.Codec("zstd").compress(text, asbytes=True)
        return b"".join([MAGIC, bytes([VERSION]), len(text).to_bytes(8, "big"), packed])

    @staticmethod
    def from_bytes(data: bytes) -> PlannerState:
        """Inverse of `to_bytes`.

        Raises:
            BadRequestError: Not a planner state, or one of another version.
        """
        if data[:4] != MAGIC or len(data) < 13:
            raise BadRequestError(f"a planner state must begin with {MAGIC!r}, got {data[:4]!r}")
        if data[4] != VERSION:
            raise BadRequestError(f"a planner state must have version {VERSION}, got {data[4]}")
        try:
            return _state_of(_decompress(data))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise BadRequestError(f"a planner state that cannot be read: {error}") from error


def _decompress(data: bytes) -> Any:
    size_bytes = int.from_bytes(data[5:13], "big")
    if size_bytes > _MAX_BYTES:
        raise ValueError(f"size must be <= {_MAX_BYTES} bytes, got {size_bytes}")
    return json.loads(pa.Codec("zstd").decompress(data[13:], decompressed_size=size_bytes, asbytes=True))


def _source_tree(source: SourceState) -> dict[str, Any]:
    tree = {field.name: getattr(source, field.name) for field in fields(source) if field.name != "cursor_L3"}
    return {"cursor": source.cursor_L3.tolist()} | tree


def _source_of(tree: dict[str, Any]) -> SourceState:
    made = {
        "cursor_L3": np.array(tree.pop("cursor"), np.int64).reshape(-1, 3),
        "bad_at": tuple(tree["bad_at"]),
        "counted": EpochCounts(*tree["counted"]),
        "learned": None if tree["learned"] is None else EpochCounts(*tree["learned"]),
    }
    return SourceState(**(tree | made))


def _state_of(tree: dict[str, Any]) -> PlannerState:
    values_NP = np.array(tree["queue"], np.int64).reshape(-1, NUM_COLUMNS)
    spans_N = np.full(len(values_NP), None, np.object_)
    for i, pairs in tree["spans"].items():
        spans_N[int(i)] = np.array(pairs, np.int32).reshape(-1, 2)
    return PlannerState(
        step=tree["step"],
        is_over=tree["is_over"],
        has_ended=tree["has_ended"],
        credit_S=tuple(tree["credit_S"]),
        placed_tokens_S=tuple(tree["placed_tokens_S"]),
        sources=tuple(_source_of(source) for source in tree["sources"]),
        queue=PieceTable(values_NP=values_NP, spans_N=spans_N),
    )
