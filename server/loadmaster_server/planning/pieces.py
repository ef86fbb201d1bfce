"""Pieces on their way into a step: drawn, queued, cut and joined.

# N = pieces, P = columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadmaster_flight.wire.errors import DataError

from .columns import (
    Int64Array,
    ObjectArray,
    is_nothing,
    join_objects,
    join_rows,
    matrix,
    nothing,
    positions,
    take_objects,
    take_rows,
)
from .lists import Lists
from .ordering import stable_order
from .rows import count_valid

POS, EPOCH, LANE, SHARD, BLOCK, SAMPLE_TOKENS, VALID, SOURCE, FIRST, TOKENS, DRAWN_AT = range(11)
"""Columns of the matrix: [FIRST, FIRST + TOKENS) of a sample of SAMPLE_TOKENS; VALID counts the targets with a loss,
DRAWN_AT is the step that drew it. The first seven are a row's, in the order in which it has them."""
FROM_ROW = slice(POS, VALID + 1)
NUM_COLUMNS = DRAWN_AT + 1
SAMPLE_KEY = (SOURCE, EPOCH, SHARD, BLOCK, POS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTable:
    """Pieces in some order.

    Attributes:
        values_NP: Shape (N, 11), int64, the columns POS .. DRAWN_AT; column by column in memory.
        spans_N: Shape (N,), objects: the loss spans of the whole sample (int32 (K, 2)) or None: every target counts.
        patches: Of N pieces: the patches of each unit of the sample's media; none: it has no media. A piece that has
            media is a whole sample.
    """

    values_NP: Int64Array
    spans_N: ObjectArray
    patches: Lists

    def __len__(self) -> int:
        return len(self.values_NP)

    @property
    def tokens_N(self) -> Int64Array:
        return self.values_NP[:, TOKENS]

    @property
    def source_N(self) -> Int64Array:
        return self.values_NP[:, SOURCE]

    def aligned_N(self, align: int) -> Int64Array:
        """Tokens that each piece takes in its bin."""
        return np.asarray(-(-self.tokens_N // align) * align)

    def take(self, index: npt.NDArray[np.generic]) -> PieceTable:
        """The pieces at `index` (positions or a mask), in that order."""
        index_M = positions(index)
        return PieceTable(
            values_NP=take_rows(self.values_NP, index_M),
            spans_N=take_objects(self.spans_N, index_M),
            patches=self.patches.take(index_M),
        )

    @staticmethod
    def concat(tables: Sequence[PieceTable]) -> PieceTable:
        """All pieces of `tables`, one table after the other."""
        tables = [table for table in tables if len(table)] or tables[:1]
        if len(tables) == 1:
            return tables[0]
        return PieceTable(
            values_NP=join_rows([table.values_NP for table in tables]),
            spans_N=join_objects([table.spans_N for table in tables]),
            patches=Lists.concat([table.patches for table in tables]),
        )

    @staticmethod
    def empty() -> PieceTable:
        return PieceTable(values_NP=matrix(0, NUM_COLUMNS), spans_N=nothing(0), patches=Lists.nothing(0))


def part_of(pieces: PieceTable, index_N: Int64Array, offset_N: Int64Array, tokens_N: Int64Array) -> PieceTable:
    """Cut parts out of pieces: part i is [offset_i, offset_i + tokens_i) of piece index_i; loss counts follow."""
    parts = pieces.take(index_N)
    cut_N = np.flatnonzero(tokens_N != parts.tokens_N)
    parts.values_NP[:, FIRST] += offset_N
    parts.values_NP[:, TOKENS] = tokens_N
    count_parts(parts, cut_N)
    return parts


def count_parts(pieces: PieceTable, at_M: Int64Array) -> None:
    """Count afresh the targets with a loss of the pieces at `at_M`, in place."""
    first_M, tokens_M, sample_M = (pieces.values_NP[at_M, column] for column in (FIRST, TOKENS, SAMPLE_TOKENS))
    if is_nothing(pieces.spans_N):
        pieces.values_NP[at_M, VALID] = np.minimum(first_M + tokens_M + 1, sample_M) - first_M - 1
        return
    for i, first, tokens, sample in zip(at_M, first_M.tolist(), tokens_M.tolist(), sample_M.tolist(), strict=True):
        pieces.values_NP[i, VALID] = count_valid(pieces.spans_N[i], first, first + tokens, sample)


def cut_to(pieces: PieceTable, row_len: int) -> PieceTable:
    """Cut pieces longer than `row_len` into pieces of that length and a rest, in place of the long one.

    Raises:
        DataError: One of them has media.
    """
    if not len(pieces) or pieces.tokens_N.max() <= row_len:
        return pieces
    _check_cut(pieces, np.flatnonzero(pieces.tokens_N > row_len), row_len)
    count_N = -(-pieces.tokens_N // row_len)
    index_N = np.repeat(np.arange(len(pieces)), count_N)
    offset_N = (np.arange(len(index_N)) - np.repeat(np.cumsum(count_N) - count_N, count_N)) * row_len
    tokens_N = np.minimum(pieces.tokens_N[index_N] - offset_N, row_len)
    return part_of(pieces, index_N, offset_N, tokens_N)


def _check_cut(pieces: PieceTable, at_M: Int64Array, row_len: int) -> None:
    """Samples with media that a later step has no room for are never drawn, unless the schedule was changed since."""
    wrong = at_M[pieces.patches.take(at_M).has_N]
    if len(wrong):
        source, epoch, shard, block, pos = pieces.values_NP[wrong[0], list(SAMPLE_KEY)].tolist()
        raise DataError(
            f"seq_len must stay at least as long as queued samples with media, which cannot be cut, got {row_len} for "
            f"{pieces.tokens_N[wrong[0]]} tokens of source {source}, epoch {epoch}, shard {shard}, block {block}, "
            f"pos {pos}: plan the steps before it anew, or keep seq_len"
        )


def canonical_order(pieces: PieceTable) -> Int64Array:
    """Positions that sort by (source, epoch, shard, block, pos, first_token), int64 (N,)."""
    return stable_order([pieces.values_NP[:, column] for column in (*SAMPLE_KEY, FIRST)])


def join_neighbours(pieces: PieceTable, bin_N: Int64Array) -> tuple[PieceTable, Int64Array]:
    """Join pieces of a sample that follow each other and lie in the same bin.

    Args:
        pieces: In canonical order.
    """
    goes_on_N = _goes_on(pieces.values_NP) & (bin_N[1:] == bin_N[:-1])
    if not goes_on_N.any():
        return pieces, bin_N
    starts_N = np.flatnonzero(np.append(True, ~goes_on_N))
    joined = pieces.take(starts_N)
    for column in (TOKENS, VALID):
        joined.values_NP[:, column] = np.add.reduceat(pieces.values_NP[:, column], starts_N)
    return joined, bin_N[starts_N]


def _goes_on(values_NP: Int64Array) -> npt.NDArray[np.bool_]:
    """Whether the piece after each piece but the last goes on where it ends, shape (N - 1,)."""
    first_N = values_NP[:, FIRST]
    goes_on_N = (first_N[1:] > 0) & (first_N[1:] == first_N[:-1] + values_NP[:-1, TOKENS])
    if goes_on_N.any():  # rare: most samples are whole
        for column in SAMPLE_KEY:
            goes_on_N &= values_NP[1:, column] == values_NP[:-1, column]
    return np.asarray(goes_on_N)
