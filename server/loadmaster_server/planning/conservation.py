"""The check that every plan passes before anyone sees it.

# N = pieces, B = bins
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loadmaster_flight.spec import Layout
from loadmaster_flight.wire.errors import InternalError
from loadmaster_flight.wire.step_plan import Units

from .columns import Int64Array
from .pieces import FIRST, SAMPLE_KEY, TOKENS, VALID, PieceTable, canonical_order, join_neighbours
from .rules import StepShape

_FINALIZER = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_ODD = tuple(np.uint64(0x9E3779B97F4A7C15 * (2 * i + 1) % (1 << 64)) for i in range(len(SAMPLE_KEY)))
_CHUNK = 1 << 14
_ALL_BITS = (1 << 64) - 1


def check_step(
    offered: PieceTable, placed: PieceTable, bin_N: Int64Array, queued: PieceTable, shape: StepShape, *,
    may_be_short: bool,
) -> None:  # fmt: skip
    """Check that what was offered (queue and draw) is placed or queued, whole, and that the bins keep their caps.

    Args:
        bin_N: Bin of each placed piece, shape (N,).
        may_be_short: The stream's last step: bins may be empty.

    Raises:
        InternalError: Names the step, the rule and the numbers.
    """
    _check_same(offered, [placed, queued], shape.step)
    _check_bins(placed, bin_N, shape)
    if not may_be_short:
        empty_B = np.flatnonzero(np.bincount(bin_N, minlength=shape.num_bins) == 0)
        if len(empty_B):
            raise InternalError(
                f"step {shape.step}: bins {empty_B[:8].tolist()} are empty in a step that is not the last"
            )


def check_units(placed: PieceTable, units: Units, world_size: int, step: int) -> None:
    """Check that every unit of media of the placed pieces goes to exactly one rank that there is.

    Raises:
        InternalError: Names the step, the rule and the numbers.
    """
    at_M, count_M, patches = placed.patches.flat()
    want_N = np.zeros(len(placed), np.int64)
    want_N[at_M] = count_M
    if len(units.rank_U) != len(patches) or (units.piece_U[1:] < units.piece_U[:-1]).any():
        raise InternalError(f"step {step}: {len(patches)} units must be placed in order, got {len(units.rank_U)}")
    got_N = np.bincount(units.piece_U, minlength=len(placed))
    if len(got_N) != len(want_N) or (got_N != want_N).any():
        i = int(np.argmax(got_N[: len(want_N)] != want_N))
        raise InternalError(f"step {step}: piece {i} must have {want_N[i]} units placed, got {got_N[i]}")
    wrong_U = np.flatnonzero((units.rank_U < 0) | (units.rank_U >= world_size))
    if len(wrong_U):
        u = int(wrong_U[0])
        raise InternalError(
            f"step {step}: units must be encoded by ranks in [0, {world_size}), got {units.rank_U[u]} for one of piece "
            f"{units.piece_U[u]}"
        )


def _check_same(before: PieceTable, after: Sequence[PieceTable], step: int) -> None:
    """Equal as multisets of tokens of samples, with their loss, however these are cut."""
    if _mark(before) != sum(map(_mark, after)) & _ALL_BITS:
        whole, parts = _ranges(before), _ranges(PieceTable.concat(after))
        raise InternalError(
            f"step {step}: placed and queued pieces must be those offered, "
            f"got {len(parts)} ranges of {parts.tokens_N.sum()} tokens for {len(whole)} of {whole.tokens_N.sum()}"
        )


def _mark(pieces: PieceTable) -> int:
    """A 64-bit sum over pieces that cutting and joining leave alone: marks of both ends, and of the loss counts.

    Two different multisets have the same sum with a chance of 2**-64; sorting a million pieces takes ten times as long.
    """
    values_PN = pieces.values_NP.T.view(np.uint64)
    mark = sum(_mark_chunk(values_PN[:, at : at + _CHUNK]) for at in range(0, len(pieces), _CHUNK))
    return (mark + _mark_media(pieces)) & _ALL_BITS


def _mark_chunk(values_PN: npt.NDArray[np.uint64]) -> int:
    sample_N = _samples(values_PN)
    first_N = sample_N + values_PN[FIRST] * _ODD[-1]
    stop_N = first_N + values_PN[TOKENS] * _ODD[-1]
    mark_N = _mix(stop_N) - _mix(first_N) + _mix(sample_N) * values_PN[VALID]
    return int(mark_N.sum(dtype=np.uint64))


def _samples(values_PN: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    sample_N = np.full(values_PN.shape[1], _ODD[0])  # _mix(0) is 0
    for column, odd in zip(SAMPLE_KEY, _ODD, strict=True):
        sample_N += values_PN[column] * odd
    return sample_N


def _mark_media(pieces: PieceTable) -> int:
    """The same for the media: samples that have any, how many units, and the sum of their patches."""
    at_M, count_M, patches = pieces.patches.flat()
    if not len(at_M):
        return 0
    sum_M = np.bincount(np.repeat(np.arange(len(at_M)), count_M), weights=patches, minlength=len(at_M))
    media_M = (sum_M.astype(np.uint64) << np.uint64(24)) + count_M.astype(np.uint64) + np.uint64(1)
    sample_M = _mix(_samples(np.ascontiguousarray(pieces.values_NP[at_M].T).view(np.uint64)))
    return int((_mix(sample_M + media_M)).sum(dtype=np.uint64))


def _mix(value_N: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The splitmix64 finalizer, a bijection of 64-bit integers, in place."""
    for shift, odd in _FINALIZER:
        value_N ^= value_N >> shift
        value_N *= odd
    value_N ^= value_N >> np.uint64(31)
    return value_N


def _ranges(pieces: PieceTable) -> PieceTable:
    return join_neighbours(pieces.take(canonical_order(pieces)), np.zeros(len(pieces), np.int64))[0]


def _check_bins(placed: PieceTable, bin_N: Int64Array, shape: StepShape) -> None:
    if len(bin_N) and (bin_N.min() < 0 or bin_N.max() >= shape.num_bins):
        raise InternalError(
            f"step {shape.step}: bins must be in [0, {shape.num_bins}), got {bin_N.min()}..{bin_N.max()}"
        )
    if len(placed) and placed.tokens_N.max() > shape.row_len:
        raise InternalError(f"step {shape.step}: pieces must be <= {shape.row_len}, got {placed.tokens_N.max()}")
    if shape.layout is Layout.PAD:
        used_B, cap = np.bincount(bin_N, minlength=shape.num_bins), shape.rows
    else:
        used_B = np.bincount(bin_N, weights=placed.aligned_N(shape.align), minlength=shape.num_bins)
        cap = shape.capacity
    if used_B.max() > cap:
        raise InternalError(f"step {shape.step}: bin {used_B.argmax()} must hold <= {cap}, got {int(used_B.max())}")
