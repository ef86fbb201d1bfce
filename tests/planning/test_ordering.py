"""Sorting by several integers at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_server.planning.ordering import stable_order


@given(
    num=st.sampled_from([0, 1, 40, 300, 1000]),
    widths=st.lists(st.sampled_from([1, 3, 300, 70_000, 1 << 40]), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
)
def test_stable_order_when_compared_with_lexsort_then_it_is_the_same(num: int, widths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = [rng.integers(-width, width, num) for width in widths]
    assert stable_order(keys).tolist() == np.lexsort(keys[::-1]).tolist()


@pytest.mark.parametrize("num", [3, 1000])
def test_stable_order_when_all_are_equal_then_they_keep_their_order(num: int) -> None:
    assert stable_order([np.full(num, 7), np.full(num, -1)]).tolist() == list(range(num))
