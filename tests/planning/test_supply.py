"""How many rows are asked for at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]
NUM_STEPS = 32


@pytest.mark.parametrize(
    ("length", "microbatches", "least", "most"), [(64, 1, 8, 16), (8192, 8, 1, 3)], ids=["small", "large"]
)
def test_plan_when_steps_are_small_then_a_round_trip_feeds_many_of_them(
    make_rig: Make, spec_of: Make, length: int, microbatches: int, least: int, most: int
) -> None:
    """Steps of 16 short documents, and of 8 long ones, of which no more than two steps are to be measured ahead."""
    rig = make_rig(spec_of(seq_len=max(1024, length), microbatches=microbatches), [[length] * 800])
    rig.steps(40)  # by then lengths are known
    before = rig.num_refusals
    rig.steps(NUM_STEPS)
    assert least <= NUM_STEPS / (rig.num_refusals - before) <= most
