"""The check that every plan passes before anyone sees it.

# N = pieces, B = bins
"""

from __future__ import annotations

import numpy as np

from loadmaster_flight.spec import Layout
from loadmaster_flight.wire.errors import InternalError

from .pieces import FIRST, SAMPLE_KEY, TOKENS, VALID, PieceTable, join_neighbours
from .rows import Int64Array
from .rules import StepShape

_COMPARED = (*SAMPLE_KEY, FIRST, TOKENS, VALID)


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
    _check_same(offered, PieceTable.concat([placed, queued]), shape.step)
    _check_bins(placed, bin_N, shape)
    if not may_be_short:
        empty_B = np.flatnonzero(np.bincount(bin_N, minlength=shape.num_bins) == 0)
        if len(empty_B):
            raise InternalError(
                f"step {shape.step}: bins {empty_B[:8].tolist()} are empty in a step that is not the last"
            )


def _check_same(before: PieceTable, after: PieceTable, step: int) -> None:
    """Equal as sets of token ranges of samples, however they are cut."""
    whole, parts = (_ranges(pieces) for pieces in (before, after))
    if whole.shape != parts.shape or (whole != parts).any():
        raise InternalError(
            f"step {step}: placed and queued pieces must be those offered, "
            f"got {len(parts)} ranges of {parts[:, -2].sum()} tokens for {len(whole)} of {whole[:, -2].sum()}"
        )


def _ranges(pieces: PieceTable) -> Int64Array:
    joined, _ = join_neighbours(pieces, np.zeros(len(pieces), np.int64))
    return joined.values_NP[:, _COMPARED]


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
