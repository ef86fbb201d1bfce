"""Every source gets its share, at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from loadmaster_server.planning.mixture import ONE

LONGEST = 1024
Make = Callable[..., Any]


def _lengths(seed: int, num: int = 400, mean: float = 300) -> list[int]:
    rng = np.random.default_rng(seed)
    return (1 + rng.lognormal(np.log(mean) - 0.72, 1.2, num)).astype(int).tolist()


def _check_token_shares(rig: Any, num_steps: int) -> np.ndarray:
    """At each step: what is drawn is within one piece of target, what is placed within that and the queue."""
    target_S: np.ndarray | float = 0.0
    drawn_S = rig.drawn_S()
    for _ in range(num_steps):
        plan = rig.next()
        before_S, drawn_S = drawn_S, rig.drawn_S()
        target_S = target_S + plan.weights_S / ONE * (drawn_S - before_S).sum()
        state = rig.planner.state()
        placed_S = np.array(state.placed_tokens_S)
        assert sum(state.credit_S) == 0
        assert (np.abs(drawn_S - target_S) <= LONGEST).all(), plan.step
        assert (np.abs(placed_S - target_S) <= LONGEST + (drawn_S - placed_S)).all(), plan.step
    return drawn_S


def test_shares_when_counted_in_tokens_then_each_is_within_a_piece_at_every_one_of_1000_steps(
    make_rig: Make, spec_of: Make
) -> None:
    weights = [0.6, 0.3, 0.0999, 0.0001]
    spec = spec_of(4, weights=weights, seq_len=LONGEST, microbatches=8)
    rig = make_rig(spec, [_lengths(s, mean=100 * (s + 1)) for s in range(4)])
    drawn_S = _check_token_shares(rig, 1000)
    assert drawn_S[3] > 0
    assert drawn_S[3] == pytest.approx(0.0001 * drawn_S.sum(), abs=LONGEST)


def test_shares_when_there_are_300_sources_of_zipf_weights_then_each_is_within_a_piece(
    make_rig: Make, spec_of: Make
) -> None:
    spec = spec_of(300, weights=[1 / (s + 1) for s in range(300)], seq_len=LONGEST, microbatches=16)
    rig = make_rig(spec, [_lengths(s, num=48) for s in range(300)])
    drawn_S = _check_token_shares(rig, 120)
    assert (drawn_S > 0).all()


def test_shares_when_counted_in_samples_then_each_is_within_one_sample(make_rig: Make, spec_of: Make) -> None:
    spec = spec_of(3, weights=[0.5, 0.499, 0.001], unit="samples", seq_len=LONGEST, microbatches=8)
    rig = make_rig(spec, [_lengths(s, mean=(30, 300, 3000)[s]) for s in range(3)])
    for _ in range(1000):
        rig.next()
        credit = rig.planner.state().credit_S
        assert sum(credit) == 0
        assert max(map(abs, credit)) <= ONE
    rows = [source.num_rows for source in rig.planner.state().sources]
    assert rows == pytest.approx([0.5 * sum(rows), 0.499 * sum(rows), 0.001 * sum(rows)], abs=1.001)


KNOTS: list[list[Any]] = [
    [{"at": 0, "value": 1.0, "shape": "linear"}, {"at": 100, "value": 0.01}],
    [{"at": 0, "value": 0.2, "shape": "cosine"}, {"at": 60, "value": 2.0}, {"at": 140, "value": 0.5}],
    [{"at": 0, "value": 0.001}, {"at": 80, "value": 3.0}],
]


def test_shares_when_weights_change_by_knots_then_each_follows_its_curve(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(3, weights=KNOTS, seq_len=LONGEST), [_lengths(s) for s in range(3)])
    _check_token_shares(rig, 200)


def _weights_of(plans: Sequence[Any]) -> np.ndarray:
    return np.array([plan.weights_S for plan in plans]) / ONE


def test_weights_when_knots_are_linear_then_the_plans_hold_the_normalised_curve(make_rig: Make, spec_of: Make) -> None:
    knots = [{"at": 0, "value": 1.0, "shape": "linear"}, {"at": 4, "value": 0.0}]
    rig = make_rig(spec_of(2, weights=[knots, 1.0]), [_lengths(0), _lengths(1)])
    expected = [[0.5, 0.5], [0.75 / 1.75, 1 / 1.75], [1 / 3, 2 / 3], [0.2, 0.8], [0, 1], [0, 1]]
    assert _weights_of(rig.steps(6)) == pytest.approx(np.array(expected), abs=1e-8)


def test_draw_when_a_weight_is_zero_then_the_source_waits_and_credits_sum_to_zero(
    make_rig: Make, spec_of: Make
) -> None:
    knots = [{"at": 0, "value": 1.0}, {"at": 5, "value": 0.0}, {"at": 10, "value": 1.0}]
    rig = make_rig(spec_of(3, weights=[knots, 1.0, 0.0]), [_lengths(s) for s in range(3)])
    at_five = [rig.next() for _ in range(5)] and rig.drawn_S()[0]
    for _ in range(5):
        rig.next()
        assert sum(rig.planner.state().credit_S) == 0
    assert rig.drawn_S()[0] == at_five
    rig.steps(3)
    assert rig.drawn_S()[0] > at_five
    assert rig.drawn_S()[2] == 0
