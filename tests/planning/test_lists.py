"""Columns of lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_server.planning.lists import Lists

Rows = list[list[int] | None]
ROWS = st.lists(st.none() | st.lists(st.integers(0, 1 << 20), max_size=4), max_size=12)


def _lists(rows: Rows) -> Lists:
    return Lists.of_arrow(pa.array(rows, pa.list_(pa.int32())))


def _rows(lists: Lists) -> Rows:
    return [None if (values := lists[i]) is None else values.tolist() for i in range(len(lists))]


@given(rows=ROWS)
def test_lists_when_read_from_arrow_then_rows_are_those_of_the_column_and_flat_has_them_in_order(rows: Rows) -> None:
    lists = _lists(rows)
    assert _rows(lists) == rows
    at_M, count_M, values_V = lists.flat()
    assert at_M.tolist() == [i for i, row in enumerate(rows) if row is not None]
    assert count_M.tolist() == [len(row) for row in rows if row is not None]
    assert values_V.tolist() == [value for row in rows for value in row or []]
    assert _rows(Lists.of(len(rows), at_M, count_M, values_V)) == rows
    assert lists.has_N.tolist() == [row is not None for row in rows]
    assert lists.is_nothing is all(row is None for row in rows)


@given(parts=st.lists(ROWS, max_size=4), seed=st.integers(0, 2**32))
def test_lists_when_taken_joined_and_cleared_then_rows_keep_their_lists(parts: list[Rows], seed: int) -> None:
    rng = np.random.default_rng(seed)
    taken, expected = [], list[list[int] | None]()
    for rows in parts:
        index = rng.integers(0, len(rows), int(rng.integers(0, 8))) if rows else np.zeros(0, np.int64)
        taken += [_lists(rows).take(index), _lists(rows).take(slice(1, 3))]
        expected += [rows[i] for i in index.tolist()] + rows[1:3]
    joined = Lists.concat(taken)
    assert _rows(joined) == expected
    assert len(joined.values_V) == sum(len(row or []) for row in expected)
    cleared = rng.permutation(len(expected))[: len(expected) // 2]
    assert _rows(joined.without(cleared)) == [None if i in cleared else row for i, row in enumerate(expected)]


def test_lists_when_none_has_any_then_the_column_has_no_memory() -> None:
    nothing = Lists.concat([Lists.nothing(3), Lists.nothing(4).take(slice(1, 4)), Lists.nothing(9).take(np.arange(2))])
    assert (len(nothing), nothing.is_nothing) == (8, True)
    assert nothing.count_N.base is not None
    assert not Lists.concat([nothing, _lists([[]])]).is_nothing
