from __future__ import annotations

from typing import Any

import pytest

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.skipping import Skip

SKIP = Skip(first=10, last=15)


@pytest.mark.parametrize(("step", "past", "after"), [(8, 8, 9), (9, 9, 15), (10, 15, 15), (14, 15, 15), (15, 15, 16)])
def test_past_and_after_when_steps_are_left_out_then_they_are_jumped_over(step: int, past: int, after: int) -> None:
    assert (SKIP.past(step), SKIP.after(step)) == (past, after)


@pytest.mark.parametrize("first", range(6, 18))
@pytest.mark.parametrize("num", [1, 3, 7])
def test_ahead_when_it_reaches_over_the_gap_then_counts_served_steps(first: int, num: int) -> None:
    assert len(list(SKIP.served(first, SKIP.ahead(first, num)))) == num


def test_skip_when_empty_then_nothing_is_left_out() -> None:
    nothing = Skip.of([])
    assert nothing.as_list() == []
    assert Skip.of(SKIP.as_list()) == SKIP
    assert [nothing.past(0), nothing.after(0), nothing.ahead(0, 4)] == [0, 1, 4]
    assert list(nothing.served(0, 3)) == [0, 1, 2]


@pytest.mark.parametrize("steps", [[1], [3, 3], [5, 2], [-1, 4], [1, 2, 3], ["1", "2"], [0.0, 2.0], [False, True]])
def test_skip_when_not_two_rising_steps_then_refused(steps: list[Any]) -> None:
    with pytest.raises(BadRequestError, match=r"skip must be two steps \(a, b\) with 0 <= a < b"):
        Skip.of(steps)
