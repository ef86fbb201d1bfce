"""Membership of one step: which pieces it holds, in which bins, and what waits.

# N = pieces, S = sources
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from loadmaster_flight.spec import Layout
from loadmaster_flight.wire.errors import DataError, RunPausedError

from .best_fit import UNPLACED
from .columns import Int64Array
from .conservation import check_step
from .draw import Draw, draw, nothing_drawn
from .feed import Head, SourceFeed
from .outliers import held_back
from .pack import pack
from .pieces import DRAWN_AT, PieceTable, canonical_order, cut_to, join_neighbours
from .rules import StepShape, StreamRules
from .state import PlannerState

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One step before it is placed on a mesh; a pure function of state, rules and data.

    Attributes:
        placed: Pieces of the step, in canonical order.
        bin_N: Shape (N,), int64, packed bin of each.
        queue: Pieces that wait for the next step, oldest first.
        credit_S: Shape (S,), credits after the draw.
        weights_S: Shape (S,), the mixture in force at the step's beginning.
        heads: Where the sources stand after the step.
        has_ended: Nothing will be drawn after this step.
        is_final: The stream's last step.
    """

    shape: StepShape
    placed: PieceTable
    bin_N: Int64Array
    queue: PieceTable
    credit_S: list[int]
    weights_S: list[int]
    heads: Mapping[int, Head]
    has_ended: bool
    is_final: bool


def plan_membership(feeds: Sequence[SourceFeed], rules: StreamRules, state: PlannerState) -> Membership:
    """Draw, pack and queue the step `state.step`; changes nothing.

    Raises:
        MissingRowsError: More rows must be measured.
        DataError: A source ended that must not, or an epoch yields nothing; names the source.
        RunPausedError: A source has too many bad rows.
        InternalError: The conservation check failed.
    """
    shape = rules.shape_at(state.step)
    drawn, offered, pieces, bin_N = _draw_and_pack(feeds, rules, state, shape)
    waiting = pieces.take(bin_N == UNPLACED)
    placed, bin_N = _placed(pieces, bin_N, shape)
    is_final, drawn = _look_ahead(feeds, rules, state, drawn, placed, waiting)
    check_step(offered, placed, bin_N, waiting, shape, may_be_short=is_final)
    return Membership(
        shape=shape,
        placed=placed,
        bin_N=bin_N,
        queue=waiting,
        credit_S=drawn.credit_S,
        weights_S=drawn.weights_S,
        heads=drawn.heads,
        has_ended=drawn.has_ended,
        is_final=is_final,
    )


def _draw_and_pack(
    feeds: Sequence[SourceFeed], rules: StreamRules, state: PlannerState, shape: StepShape
) -> tuple[Draw, PieceTable, PieceTable, Int64Array]:
    """Draw and pack, and again with more for as long as the bins do not fill; of all that, the fullest bins.

    Returns:
        The draw, the pieces offered (queue and draw), the same as packed (possibly cut), and the bin of each.
    """
    queue, shares_S = cut_to(state.queue, shape.row_len), rules.shares_at(shape.step)
    drawn = nothing_drawn(feeds, shares_S, state.credit_S, has_ended=state.has_ended)
    offered, held_N = queue, _held(queue, shape, has_ended=state.has_ended)
    most = -1
    for level in shape.draw_levels:
        amount, is_lacking = level - _amount(offered, shape, held_N), True
        while is_lacking and not drawn.has_ended:
            drawn = draw(feeds, shares_S, drawn, shape, amount, counts_samples=rules.counts_samples)
            offered = PieceTable.concat([queue, drawn.pieces])
            held_N = _held(offered, shape, has_ended=drawn.has_ended)
            amount = level - _amount(offered, shape, held_N)
            is_lacking = held_N is not None and amount > 0
        pieces, bin_N = _pack(offered, shape, held_N)
        placed = _placed_amount(pieces, bin_N, shape)
        if placed > most or drawn.has_ended:
            most, best = placed, (drawn, offered, pieces, bin_N)
        if drawn.has_ended or placed >= shape.is_full_at:
            break
    return best


def _held(offered: PieceTable, shape: StepShape, *, has_ended: bool) -> BoolArray | None:
    """Which pieces are held back; None: no piece ever is. Nothing is when there is nothing more to wait for."""
    if shape.max_age is None or has_ended:
        return None
    return held_back(
        offered.aligned_N(shape.align) // shape.align,
        shape.step - offered.values_NP[:, DRAWN_AT],
        num_bins=shape.num_bins,
        capacity=shape.capacity // shape.align,
        max_age=shape.max_age,
    )


def _pack(offered: PieceTable, shape: StepShape, held_N: BoolArray | None) -> tuple[PieceTable, Int64Array]:
    if held_N is None:
        return pack(offered, shape)
    bin_N = np.full(len(offered), UNPLACED)
    _, bin_N[~held_N] = pack(offered.take(~held_N), shape)
    return offered, bin_N


def _placed(pieces: PieceTable, bin_N: Int64Array, shape: StepShape) -> tuple[PieceTable, Int64Array]:
    """What has a bin, in canonical order; parts of a sample that follow each other in a bin are one piece."""
    order_N = canonical_order(pieces)
    order_N = order_N[bin_N[order_N] != UNPLACED]
    placed, bin_N = pieces.take(order_N), bin_N[order_N]
    return (placed, bin_N) if shape.layout is Layout.PAD else join_neighbours(placed, bin_N)


def _amount(pieces: PieceTable, shape: StepShape, held_N: BoolArray | None) -> int:
    """Aligned tokens of the pieces that may be placed (layout pad: their number)."""
    if shape.layout is Layout.PAD:
        return len(pieces)
    aligned_N = pieces.aligned_N(shape.align)
    return int(aligned_N.sum() if held_N is None else aligned_N[~held_N].sum())


def _placed_amount(pieces: PieceTable, bin_N: Int64Array, shape: StepShape) -> int:
    is_placed_N = bin_N != UNPLACED
    if shape.layout is Layout.PAD:
        return int(is_placed_N.sum())
    return int(pieces.aligned_N(shape.align)[is_placed_N].sum())


def _look_ahead(
    feeds: Sequence[SourceFeed], rules: StreamRules, state: PlannerState, drawn: Draw, placed: PieceTable,
    waiting: PieceTable,
) -> tuple[bool, Draw]:  # fmt: skip
    """Whether this is the last step; and the draw, with the rows after the last sample consumed if it is."""
    num_tokens = sum(state.placed_tokens_S) + int(placed.tokens_N.sum())
    if rules.max_steps is not None and state.step + 1 >= rules.max_steps:
        return True, drawn
    if rules.max_tokens is not None and num_tokens >= rules.max_tokens:
        return True, drawn
    if len(waiting) or drawn.has_ended:
        return not len(waiting), drawn
    following = _first_of_next(feeds, rules, state.step + 1, drawn)
    if following is None or not following.has_ended or len(following.pieces) > len(drawn.pieces):
        return False, drawn
    return True, replace(following, pieces=drawn.pieces, weights_S=drawn.weights_S)


def _first_of_next(feeds: Sequence[SourceFeed], rules: StreamRules, step: int, drawn: Draw) -> Draw | None:
    """Draw one piece of the next step, for show; None: the next step will fail, and say why when its time comes."""
    shape, shares_S = rules.shape_at(step), rules.shares_at(step)
    try:
        return draw(feeds, shares_S, drawn, shape, 1, counts_samples=rules.counts_samples)
    except (DataError, RunPausedError):
        return None


def tokens_by_source(placed: PieceTable, num_sources: int) -> Int64Array:
    """Real tokens placed per source, int64 (S,)."""
    tokens_S = np.zeros(num_sources, np.int64)
    np.add.at(tokens_S, placed.source_N, placed.tokens_N)
    return tokens_S
