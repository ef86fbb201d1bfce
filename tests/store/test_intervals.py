from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, Pieces, StepPlan, Units, encode_plans
from loadmaster_server.store.intervals import NO_BIN, intervals_of, pieces_of
from support.services import plan_at

PLAN = plan_at(3, seq_len=64, num_bins=8, dp=2, num_steps=None)
ROWS = st.lists(
    st.tuples(*(st.integers(0, most) for most in (3, 2, 5, 9, 2, 40, 500)), st.sampled_from([-1, 7, 90])), max_size=60
)


def _plan(rows: list[tuple[int, ...]], units: list[int]) -> StepPlan:
    columns = np.array(rows, np.int64).reshape(len(rows), len(PIECE_COLUMNS) - 1)
    pieces = Pieces(**dict(zip(PIECE_COLUMNS, columns.T, strict=False)), bin=np.zeros(len(rows), np.int64))
    piece_U = np.sort(np.array(units, np.int64))
    ordered = pieces.take(pieces.canonical_order())
    first = np.where(ordered.num_tokens < 0, 0, ordered.first_token)
    return replace(
        PLAN, pieces=replace(ordered, first_token=first), units=Units(piece_U=piece_U, rank_U=np.zeros_like(piece_U))
    )


@given(rows=ROWS, data=st.data())
def test_intervals_when_packed_then_pieces_and_units_come_back(
    rows: list[tuple[int, ...]], data: st.DataObject
) -> None:
    units = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    plan = _plan(rows, units)
    pieces, piece_U = pieces_of(intervals_of(encode_plans([plan])))
    assert piece_U.tolist() == plan.units.piece_U.tolist()
    for name in PIECE_COLUMNS:
        wanted = getattr(plan.pieces, name) if name != "bin" else np.full(len(rows), NO_BIN)
        assert getattr(pieces, name).tolist() == wanted.tolist()


def test_intervals_when_samples_follow_each_other_then_under_a_byte_a_sample() -> None:
    num = 20_000
    rows = [(0, 0, 0, 0, 0, pos, 0, -1) for pos in range(num)]
    assert len(intervals_of(encode_plans([_plan(rows, [])]))) < 200


@pytest.mark.parametrize("data", [b"", b"x" * 40, intervals_of(encode_plans([PLAN]))[:-3], b"\xff" * 64])
def test_pieces_when_bytes_are_none_then_refused(data: bytes) -> None:
    with pytest.raises(BadRequestError, match="cannot be read"):
        pieces_of(data)
