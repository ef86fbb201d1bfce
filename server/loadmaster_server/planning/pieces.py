"""Pieces on their way into a step: drawn, queued, cut and joined.

# N = pieces, P = columns
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .rows import Int64Array, ObjectArray, count_valid

SOURCE, EPOCH, LANE, SHARD, BLOCK, POS, FIRST, TOKENS, SAMPLE_TOKENS, VALID, DRAWN_AT = range(11)
"""Columns of the matrix: [FIRST, FIRST + TOKENS) of a sample of SAMPLE_TOKENS; VALID counts the targets with a loss,
DRAWN_AT is the step that drew it."""
NUM_COLUMNS = DRAWN_AT + 1
SAMPLE_KEY = (SOURCE, EPOCH, SHARD, BLOCK, POS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTable:
    """Pieces in some order.

    Attributes:
        values_NP: Shape (N, 11), int64, the columns SOURCE .. DRAWN_AT.
        spans_N: Shape (N,), objects: the loss spans of the whole sample (int32 (K, 2)) or None: every target counts.
    """

    values_NP: Int64Array
    spans_N: ObjectArray

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
        return PieceTable(values_NP=self.values_NP[index], spans_N=self.spans_N[index])

    @staticmethod
    def concat(tables: Sequence[PieceTable]) -> PieceTable:
        """All pieces of `tables`, one table after the other."""
        return PieceTable(
            values_NP=np.concatenate([table.values_NP for table in tables]),
            spans_N=np.concatenate([table.spans_N for table in tables]),
        )

    @staticmethod
    def empty() -> PieceTable:
        return PieceTable(values_NP=np.zeros((0, NUM_COLUMNS), np.int64), spans_N=np.zeros(0, np.object_))


def part_of(pieces: PieceTable, index_N: Int64Array, offset_N: Int64Array, tokens_N: Int64Array) -> PieceTable:
    """Cut parts out of pieces: part i is [offset_i, offset_i + tokens_i) of piece index_i; loss counts follow."""
    parts = pieces.take(index_N)
    is_cut_N = tokens_N != parts.tokens_N
    parts.values_NP[:, FIRST] += offset_N
    parts.values_NP[:, TOKENS] = tokens_N
    for i in np.flatnonzero(is_cut_N):
        first, tokens, sample = (int(parts.values_NP[i, column]) for column in (FIRST, TOKENS, SAMPLE_TOKENS))
        parts.values_NP[i, VALID] = count_valid(parts.spans_N[i], first, first + tokens, sample)
    return parts


def cut_to(pieces: PieceTable, row_len: int) -> PieceTable:
    """Cut pieces longer than `row_len` into pieces of that length and a rest, in place of the long one."""
    if not len(pieces) or pieces.tokens_N.max() <= row_len:
        return pieces
    count_N = -(-pieces.tokens_N // row_len)
    index_N = np.repeat(np.arange(len(pieces)), count_N)
    offset_N = (np.arange(len(index_N)) - np.repeat(np.cumsum(count_N) - count_N, count_N)) * row_len
    tokens_N = np.minimum(pieces.tokens_N[index_N] - offset_N, row_len)
    return part_of(pieces, index_N, offset_N, tokens_N)


def canonical_order(pieces: PieceTable, *major_keys: Int64Array) -> Int64Array:
    """Positions that sort by (`major_keys`, source, epoch, shard, block, pos, first_token), int64 (N,)."""
    minor = [pieces.values_NP[:, column] for column in (*SAMPLE_KEY, FIRST)]
    return np.lexsort([*reversed(minor), *reversed(major_keys)]).astype(np.int64)


def join_neighbours(pieces: PieceTable, bin_N: Int64Array) -> tuple[PieceTable, Int64Array]:
    """Join pieces of a sample that follow each other and lie in the same bin.

    Returns:
        The pieces and their bins, sorted by bin and canonically inside it.
    """
    order_N = canonical_order(pieces, bin_N)
    pieces, bin_N = pieces.take(order_N), bin_N[order_N]
    if not len(pieces):
        return pieces, bin_N
    values_NP = pieces.values_NP
    goes_on_N = (values_NP[1:, SAMPLE_KEY] == values_NP[:-1, SAMPLE_KEY]).all(axis=1)
    goes_on_N &= values_NP[1:, FIRST] == values_NP[:-1, FIRST] + values_NP[:-1, TOKENS]
    goes_on_N &= bin_N[1:] == bin_N[:-1]
    if not goes_on_N.any():
        return pieces, bin_N
    starts_N = np.flatnonzero(np.append(True, ~goes_on_N))
    joined = pieces.take(starts_N)
    for column in (TOKENS, VALID):
        joined.values_NP[:, column] = np.add.reduceat(values_NP[:, column], starts_N)
    return joined, bin_N[starts_N]
