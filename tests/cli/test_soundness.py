from __future__ import annotations

import pytest

from loadmaster_flight.spec import BatchSpec
from loadmaster_server.cli.soundness import largest_step


def ramp(*knots: tuple[int, int]) -> list[dict[str, object]]:
    return [{"at": at, "value": value, "shape": "linear"} for at, value in knots]


@pytest.mark.parametrize(
    ("seq_len", "microbatches", "rows", "at_least"),
    [
        (64, 2, 1, 128),
        (64, 2, 3, 384),
        (64, ramp((0, 2), (10, 8), (20, 4)), 1, 512),
        (ramp((0, 64), (60, 192)), ramp((0, 30), (60, 10)), 1, 2400),
    ],
)
def test_largest_step_when_ramps_move_then_found_between_knots_too(seq_len, microbatches, rows, at_least):
    layout = "pad" if rows > 1 else "pack"
    batch = BatchSpec.model_validate(
        {"seq_len": seq_len, "microbatches": microbatches, "rows": rows, "layout": layout, "align": 1}
    )
    step, num_tokens = largest_step(batch)
    every_step = {s: batch.num_bins_at(s) * batch.capacity_at(s) for s in range(61)}
    assert num_tokens == max(every_step.values())
    assert every_step[step] == num_tokens
    assert num_tokens >= at_least
