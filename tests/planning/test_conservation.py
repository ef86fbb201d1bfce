"""The check that every plan passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.spec import Layout
from loadmaster_flight.wire.errors import InternalError
from loadmaster_server.planning.columns import nothing
from loadmaster_server.planning.conservation import check_step
from loadmaster_server.planning.lists import Lists
from loadmaster_server.planning.pieces import FIRST, POS, SAMPLE_TOKENS, TOKENS, VALID, PieceTable, cut_to
from loadmaster_server.planning.rules import StepShape

Make = Callable[..., Any]


def _pieces(*tokens: int) -> PieceTable:
    values = np.zeros((len(tokens), 11), np.int64)
    values[:, POS] = np.arange(len(tokens))
    values[:, TOKENS] = values[:, SAMPLE_TOKENS] = tokens
    values[:, VALID] = np.array(tokens) - 1
    return PieceTable(values_NP=values, spans_N=nothing(len(tokens)), patches=Lists.nothing(len(tokens)))


def _shape(layout: Layout = Layout.PACK, rows: int = 1) -> StepShape:
    return StepShape(
        step=5, num_bins=2, row_len=64, rows=rows, align=16, layout=layout, skips_long=False, overdraw=0.0
    )  # fmt: skip


def _check(placed: PieceTable, bins: list[int], queued: PieceTable, **changes: Any) -> None:
    offered = changes.pop("offered", _pieces(60, 40, 10))
    shape = changes.pop("shape", _shape())
    check_step(offered, placed, np.array(bins), queued, shape, may_be_short=changes.pop("may_be_short", False))


def _take(*index: int) -> PieceTable:
    return _pieces(60, 40, 10).take(np.array(index, np.int64))


def test_check_when_everything_is_placed_or_queued_then_it_passes() -> None:
    _check(_take(0, 1, 2), [0, 1, 1], _take())
    _check(_take(0, 2), [0, 1], _take(1))


def test_check_when_a_piece_is_cut_and_every_part_is_there_then_it_passes() -> None:
    parts = cut_to(_take(0, 1, 2), 32)
    assert len(parts) == 5
    _check(parts, [0, 0, 1, 1, 1], _take(), shape=_shape(Layout.PAD, rows=3))


@pytest.mark.parametrize(
    ("placed", "bins", "queued", "message"),
    [
        ((0, 1), [0, 1], (), "must be those offered, got 2 ranges of 100 tokens for 3 of 110"),
        ((0, 1, 2), [0, 1, 1], (2,), "must be those offered"),
        ((0, 1, 2), [0, 0, 1], (), "bin 0 must hold <= 64, got 112"),
        ((0, 1, 2), [0, 1, 2], (), r"bins must be in \[0, 2\), got 0..2"),
        ((0,), [0], (1, 2), r"bins \[1\] are empty in a step that is not the last"),
    ],
)
def test_check_when_a_rule_is_broken_then_the_step_and_rule_are_named(
    placed: tuple[int, ...], bins: list[int], queued: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InternalError, match=f"step 5: .*{message}"):
        _check(_take(*placed), bins, _take(*queued))


def test_check_when_the_step_is_final_then_bins_may_be_empty() -> None:
    _check(_take(0), [0], _take(1, 2), may_be_short=True)


def test_check_when_a_part_is_lost_or_loses_its_loss_then_it_fails() -> None:
    parts = cut_to(_take(0, 1, 2), 32)
    moved = replace(parts, values_NP=parts.values_NP.copy())
    moved.values_NP[1, FIRST] += 1
    masked = replace(parts, values_NP=parts.values_NP.copy())
    masked.values_NP[1, VALID] -= 1
    for pieces in (moved, masked):
        with pytest.raises(InternalError, match="must be those offered"):
            _check(pieces, [0, 0, 1, 1, 1], _take(), shape=_shape(Layout.PAD, rows=3))


def test_check_when_a_row_is_too_long_or_a_bin_has_too_many_then_it_fails() -> None:
    with pytest.raises(InternalError, match="pieces must be <= 64, got 70"):
        _check(_pieces(70), [0], _take(), offered=_pieces(70), may_be_short=True)
    with pytest.raises(InternalError, match="bin 1 must hold <= 1, got 2"):
        _check(_take(0, 1, 2), [0, 1, 1], _take(), shape=_shape(Layout.PAD))


def test_planner_when_packing_goes_wrong_then_it_fails_loudly_and_keeps_its_state(
    make_rig: Make, spec_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(spec_of(1), [[300] * 90])
    rig.next()
    state = rig.planner.state()
    loses_one = lambda pieces, shape: (pieces.take(np.arange(1, len(pieces))), np.zeros(len(pieces) - 1, np.int64))  # noqa: E731
    monkeypatch.setattr("loadmaster_server.planning.membership.pack", loses_one)
    with pytest.raises(InternalError, match="step 1: placed and queued pieces must be those offered"):
        rig.next()
    assert rig.planner.state() is state
