"""A stream's planning state after a step, and its bytes.

# S = sources, L = lanes, N = queued pieces, K = loss spans
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.errors import BadRequestError

from . import pieces as p
from .columns import Int64Array, ObjectArray, is_nothing, matrix, nothing
from .epoch_counts import NOTHING, EpochCounts
from .feed import SourceState
from .lists import Lists
from .pieces import PieceTable
from .state_bytes import SOURCE_COLUMNS, state_from_bytes, state_to_bytes

_OF_PIECE = (
    p.SOURCE,
    p.EPOCH,
    p.LANE,
    p.SHARD,
    p.BLOCK,
    p.POS,
    p.FIRST,
    p.TOKENS,
    p.SAMPLE_TOKENS,
    p.VALID,
    p.DRAWN_AT,
)
"""Columns of a piece table in the order of the bytes."""


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

    @property
    def queue_tokens(self) -> int:
        """Tokens that are drawn and wait for a later step."""
        return int(self.queue.tokens_N.sum())

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

    def grown(self, lanes: list[int]) -> PlannerState:
        """The same with more sources, which have the number of `lanes`: nothing of them is drawn, their credit is 0."""
        more = tuple(SourceState.start(num) for num in lanes)
        zeros = (0,) * len(lanes)
        return replace(
            self,
            credit_S=self.credit_S + zeros,
            placed_tokens_S=self.placed_tokens_S + zeros,
            sources=self.sources + more,
        )

    def to_bytes(self) -> bytes:
        """See `state_bytes`; equal states have equal bytes."""
        scalars = {name: getattr(self, name) for name in ("step", "is_over", "has_ended")}
        scalars["credits"] = [str(credit) for credit in self.credit_S]
        lists = _source_lists(self.sources) | _queue_lists(self.queue) | {"placed_tokens": self.placed_tokens_S}
        return state_to_bytes(scalars, lists)

    @staticmethod
    def from_bytes(data: bytes) -> PlannerState:
        """Inverse of `to_bytes`.

        Raises:
            BadRequestError: Not a planner state, or one of another version; says which.
        """
        scalars, lists = state_from_bytes(data)
        try:
            return _state_of(scalars, lists)
        except ValueError as error:
            raise BadRequestError(f"a planner state that cannot be read: {error}") from error


def _source_lists(sources: Sequence[SourceState]) -> dict[str, Any]:
    rows = [
        (
            source.epoch,
            source.next_lane,
            source.head_offset,
            source.head_tokens,
            source.yielded_epoch,
            source.is_exhausted,
            source.num_rows,
            len(source.cursor_L3),
            len(source.bad_at),
            *source.counted,
            source.learned is not None,
            *(source.learned or NOTHING),
        )
        for source in sources
    ]
    return {
        "sources": np.array(rows, np.int64).reshape(-1, len(SOURCE_COLUMNS)).T,
        "cursors": np.concatenate([np.zeros((0, 3), np.int64), *(source.cursor_L3 for source in sources)]),
        "bad_at": [at for source in sources for at in source.bad_at],
    }


def _queue_lists(queue: PieceTable) -> dict[str, Any]:
    having = [] if is_nothing(queue.spans_N) else [i for i, spans in enumerate(queue.spans_N) if spans is not None]
    media_piece, unit_count, unit_patches = queue.patches.flat()
    return {
        "pieces": queue.values_NP.T[list(_OF_PIECE)],
        "span_piece": having,
        "span_count": [len(queue.spans_N[i]) for i in having],
        "spans": np.concatenate([np.zeros((0, 2), np.int64), *(queue.spans_N[i] for i in having)]),
        "media_piece": media_piece,
        "unit_count": unit_count,
        "unit_patches": unit_patches,
    }


def _state_of(scalars: Mapping[str, Any], lists: Mapping[str, Int64Array]) -> PlannerState:
    """Raises ValueError where columns do not fit each other."""
    return PlannerState(
        step=scalars["step"],
        is_over=scalars["is_over"],
        has_ended=scalars["has_ended"],
        credit_S=tuple(int(credit) for credit in scalars["credits"]),
        placed_tokens_S=tuple(lists["placed_tokens"].tolist()),
        sources=_sources_of(lists),
        queue=_queue_of(lists),
    )


def _sources_of(lists: Mapping[str, Int64Array]) -> tuple[SourceState, ...]:
    columns = lists["sources"].reshape(len(SOURCE_COLUMNS), -1)
    num_lanes_S, num_bad_S = (columns[SOURCE_COLUMNS.index(name)] for name in ("num_lanes", "num_bad"))
    cursors = _split(lists["cursors"].reshape(-1, 3), num_lanes_S, "cursors")
    bad_at = _split(lists["bad_at"], num_bad_S, "bad_at")
    return tuple(
        SourceState(
            epoch=row[0],
            next_lane=row[1],
            cursor_L3=cursor.copy(),
            head_offset=row[2],
            head_tokens=row[3],
            yielded_epoch=row[4],
            is_exhausted=bool(row[5]),
            num_rows=row[6],
            bad_at=tuple(bad.tolist()),
            counted=EpochCounts(*row[9:12]),
            learned=EpochCounts(*row[13:16]) if row[12] else None,
        )
        for row, cursor, bad in zip(columns.T.tolist(), cursors, bad_at, strict=True)
    )


def _queue_of(lists: Mapping[str, Int64Array]) -> PieceTable:
    columns = lists["pieces"].reshape(len(_OF_PIECE), -1)
    values_NP = matrix(columns.shape[1], p.NUM_COLUMNS)
    values_NP[:, _OF_PIECE] = columns.T
    num = len(values_NP)
    return PieceTable(values_NP=values_NP, spans_N=_spans_of(lists, num), patches=_patches_of(lists, num))


def _spans_of(lists: Mapping[str, Int64Array], num_pieces: int) -> ObjectArray:
    piece_M = _pieces_at(lists, "span_piece", num_pieces)
    if not len(piece_M):
        return nothing(num_pieces)
    spans_N = np.full(num_pieces, None, np.object_)
    parts = _split(lists["spans"].astype(np.int32).reshape(-1, 2), lists["span_count"], "spans")
    for piece, spans_K2 in zip(piece_M.tolist(), parts, strict=True):
        spans_N[piece] = spans_K2
    return spans_N


def _patches_of(lists: Mapping[str, Int64Array], num_pieces: int) -> Lists:
    count_M, values = lists["unit_count"], lists["unit_patches"]
    _check_counts(count_M, len(values), "unit_patches")
    return Lists.of(num_pieces, _pieces_at(lists, "media_piece", num_pieces), count_M, values)


def _pieces_at(lists: Mapping[str, Int64Array], name: str, num_pieces: int) -> Int64Array:
    piece_M = lists[name]
    if len(piece_M) and (piece_M.min() < 0 or piece_M.max() >= num_pieces):
        raise ValueError(f"{name} must be in [0, {num_pieces}), got {piece_M.min()}..{piece_M.max()}")
    return piece_M


def _split(values: npt.NDArray[Any], count_M: Int64Array, name: str) -> list[npt.NDArray[Any]]:
    """Cut `values` into parts of these lengths."""
    _check_counts(count_M, len(values), name)
    return np.split(values, np.cumsum(count_M)[:-1]) if len(count_M) else []


def _check_counts(count_M: Int64Array, num_values: int, name: str) -> None:
    if (count_M < 0).any() or count_M.sum() != num_values:
        raise ValueError(f"the counts of {name} must sum to its {num_values} entries, got {count_M.sum()}")
