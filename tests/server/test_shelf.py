"""Decoded plans in memory: bounded by their pieces and by their number."""

from __future__ import annotations

import numpy as np
import pytest

from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, Pieces, StepPlan, plans_to_bytes
from loadmaster_server.plans.shelf import CAPACITY_PLANS, PlanShelf
from loadmaster_server.store import GenerationKey, PlanRecord

KEY = GenerationKey(run="run", stream="train", generation=0)


def _record(step: int, *, num_pieces: int) -> PlanRecord:
    columns = {name: np.zeros(num_pieces, np.int64) for name in PIECE_COLUMNS}
    plan = StepPlan(
        step=step,
        revision=0,
        is_final=False,
        num_bins=1,
        seq_len=64,
        dp=1,
        num_tokens=num_pieces,
        global_valid_tokens=num_pieces,
        weights_S=np.array([1 << 30]),
        source_tokens_S=np.array([num_pieces]),
        pieces=Pieces(**columns | {"pos": np.arange(num_pieces)}),
    ).with_digest()
    return PlanRecord(
        step=step, digest=plan.digest, revision=0, is_final=False, body=plans_to_bytes([plan]), summary={}
    )


def test_decode_when_asked_again_then_the_same_plan() -> None:
    shelf, record = PlanShelf(), _record(3, num_pieces=2)
    assert shelf.decode(KEY, record) is shelf.decode(KEY, record)
    assert shelf.decode(KEY, record).step == 3


def test_decode_when_a_run_has_very_many_small_steps_then_few_plans_stay() -> None:
    shelf = PlanShelf()
    for step in range(CAPACITY_PLANS + 100):
        shelf.decode(KEY, _record(step, num_pieces=1))
    assert len(shelf) == CAPACITY_PLANS


@pytest.mark.parametrize(("num_pieces", "kept"), [(3, 3), (10, 1), (50, 1)])
def test_decode_when_plans_are_large_then_their_pieces_count_and_one_always_stays(num_pieces: int, kept: int) -> None:
    shelf = PlanShelf(capacity_pieces=10)
    for step in range(8):
        shelf.decode(KEY, _record(step, num_pieces=num_pieces))
    assert len(shelf) == kept
