"""A planner's state as bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_server.planning import PlannerState
from loadmaster_server.planning.state_bytes import state_from_bytes, state_to_bytes

Make = Callable[..., Any]


def _some_state(make_rig: Make, spec_of: Make, fake_source: Make) -> PlannerState:
    lengths = np.random.default_rng(0).integers(1, 3000, 200).tolist()
    spans = {i: [1, 5, 900, 2000] for i in range(200)}
    rig = make_rig(spec_of(2), [fake_source(lengths, 3, 8, spans), lengths])
    rig.steps(7)
    state: PlannerState = rig.planner.state()
    return state


def test_state_when_written_and_read_then_the_bytes_are_equal_and_few(
    make_rig: Make, spec_of: Make, fake_source: Make
) -> None:
    state = _some_state(make_rig, spec_of, fake_source)
    data = state.to_bytes()
    again = PlannerState.from_bytes(data)
    assert again.to_bytes() == data
    assert len(data) < 1500
    assert (again.queue.values_NP == state.queue.values_NP).all()
    for ours, theirs in zip(again.queue.spans_N, state.queue.spans_N, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: b"PK" + data, "must begin with b'LMPS'"),
        (lambda data: data[:6], "must begin with"),
        (lambda data: data[:4] + bytes([99]) + data[5:], "must have version 4, got 99"),
        (lambda data: data[:-9], "cannot be read"),
        (lambda data: data[:5] + b"\xff" * 8 + data[13:], "cannot be read: size must be <="),
    ],
)
def test_state_when_the_bytes_are_wrong_then_it_says_why(
    make_rig: Make, spec_of: Make, fake_source: Make, spoil: Callable[[bytes], bytes], message: str
) -> None:
    data = _some_state(make_rig, spec_of, fake_source).to_bytes()
    with pytest.raises(BadRequestError, match=message):
        PlannerState.from_bytes(spoil(data))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("span_count", lambda column: column + 1, "the counts of spans must sum to its"),
        ("span_piece", lambda column: column + 1000, r"span_piece must be in \[0, "),
        ("pieces", lambda column: column[:-1], "cannot be read"),
        ("cursors", lambda column: column[:-3], "the counts of cursors must sum to its"),
    ],
)
def test_state_when_its_columns_do_not_fit_each_other_then_it_says_which(
    make_rig: Make, spec_of: Make, fake_source: Make, name: str, change: Callable[[Any], Any], message: str
) -> None:
    scalars, lists = state_from_bytes(_some_state(make_rig, spec_of, fake_source).to_bytes())
    with pytest.raises(BadRequestError, match=message):
        PlannerState.from_bytes(state_to_bytes(scalars, lists | {name: change(lists[name])}))


def test_state_when_credits_pass_64_bits_then_they_are_kept() -> None:
    state = replace(PlannerState.start([1, 1]), credit_S=(1 << 80, -1 << 80))
    assert PlannerState.from_bytes(state.to_bytes()).credit_S == state.credit_S


def test_planner_when_the_state_has_other_lanes_then_it_is_refused(
    make_rig: Make, spec_of: Make, fake_source: Make
) -> None:
    state = PlannerState.start([2, 5])
    with pytest.raises(BadRequestError, match=r"must have the run's lanes \[2, 2\], got \[2, 5\]"):
        make_rig(spec_of(2), [[1], [1]], state=state)
    with pytest.raises(BadRequestError, match="lanes must have one entry for each of 3 sources, got 2"):
        make_rig(spec_of(3), [[1], [1]])


@pytest.mark.parametrize("restarts", [False, True])
def test_state_when_epochs_end_then_what_they_held_is_known(make_rig: Make, spec_of: Make, restarts: bool) -> None:
    spec = spec_of(2, until={"epochs": 3}, over_long="skip", seq_len=256, source={"max_bad_ratio": 1.0})
    lengths = [[100, 0, 50, -1, 60, 300] * 20, [70] * 30]
    rig = make_rig(spec, lengths)
    assert [source.learned for source in rig.planner.state().sources] == [None, None]
    seen = set()
    while not rig.planner.is_over:
        rig.next()
        seen |= {source.learned for source in rig.planner.state().sources}
        if restarts:
            rig = make_rig(spec, lengths, state=PlannerState.from_bytes(rig.planner.state().to_bytes()))
    assert [source.learned for source in rig.planner.state().sources] == [(120, 60, 4200), (30, 30, 2100)]
    assert seen == {None, (120, 60, 4200), (30, 30, 2100)}
