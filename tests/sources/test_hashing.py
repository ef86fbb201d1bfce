"""H: vectors that fix it for good, and that its two forms are one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.sources.hashing import fold, fold_array, name_key

VECTORS: list[tuple[tuple[int, ...], int]] = [
    ((0,), 0xE220A8397B1DCDAF),
    ((1,), 0x910A2DEC89025CC1),
    ((18446744073709551615,), 0xE4D971771B652C20),
    ((0, 0), 0xA706DD2F4D197E6F),
    ((0, 1), 0x08B4FDA8C892B50E),
    ((1, 0), 0x5E41AB087439611E),
    ((7, 1, 2, 3), 0x19EA39DD3E86F88E),
    ((7, 3, 2, 1), 0xA5801E47E244E70D),
    ((42, 13436514500253700074, 0, 5, -1), 0x3D52B18797FC1545),
    ((123456789, 987654321, 3, 2, 1, 0), 0x7329CD8EE7001509),
]


@pytest.mark.parametrize(("args", "expected"), VECTORS)
def test_fold_when_given_a_vector_then_gives_its_value(args: tuple[int, ...], expected: int) -> None:
    assert fold(*args) == expected


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(0, 0xE220A8397B1DCDAF), (0x9E3779B97F4A7C15, 0x6E789E6AA1B965F4), (1234567, 6457827717110365317)],
)
def test_fold_when_given_a_seed_alone_then_is_the_published_splitmix64(seed: int, expected: int) -> None:
    assert fold(seed) == expected


@given(st.integers(-(2**63), 2**64 - 1), st.lists(st.integers(-(2**63), 2**64 - 1), max_size=3), st.data())
def test_fold_array_when_compared_with_fold_then_each_value_is_equal(
    seed: int, args: list[int], data: st.DataObject
) -> None:
    last_N = np.array(data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8)), np.int64)
    assert fold_array(seed, *args, last_N=last_N).tolist() == [fold(seed, *args, int(x)) for x in last_N]


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**20))
def test_fold_when_last_arguments_differ_then_never_collides(seed: int, arg: int) -> None:
    assert len(set(fold_array(seed, arg, last_N=np.arange(512)).tolist())) == 512


def test_name_key_when_given_a_name_then_is_the_head_of_its_sha256() -> None:
    assert name_key("abc") == 0xBA7816BF8F01CFEA
