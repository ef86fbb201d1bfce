"""The 1F1B simulation against closed forms and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from loadmaster_server.planning.simulation import bubble_limit, finish_times, step_time
from loadmaster_server.planning.simulation.pipeline import schedule, stage_order

COSTS = st.integers(0, 10**9).map(float)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Costs (D, M) and a number of stages."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 9)))
    return draw(arrays(np.float64, shape, elements=COSTS)), draw(st.integers(1, 6))


@pytest.mark.parametrize(("num_stages", "num_microbatches"), [(1, 5), (4, 8), (9, 16), (8, 3), (5, 1)])
def test_step_time_when_microbatches_are_equal_is_the_closed_form(num_stages: int, num_microbatches: int) -> None:
    time = step_time(np.ones((3, num_microbatches)), num_stages)

    ideal = num_microbatches / num_stages
    assert time / ideal == pytest.approx((num_microbatches + num_stages - 1) / num_microbatches)
    assert ideal / time == pytest.approx(bubble_limit(num_stages, num_microbatches))


def test_step_time_when_the_stages_differ_follows_a_hand_made_timeline() -> None:
    # two stages, costs 6 and 12: forwards 1 and 2, backwards 2 and 4 on each stage.
    # stage 0: F0 0-1, F1 1-3, B0 from 4 to 6 (stage 1: F0 1-2, B0 2-4, F1 4-6, B1 6-10), B1 10-14.
    assert step_time(np.array([[6.0, 12.0]]), 2) == pytest.approx(14.0)


@given(pipelines())
def test_finish_times_when_there_is_one_stage_are_the_sums(case: tuple[np.ndarray, int]) -> None:
    cost_DM, _ = case
    np.testing.assert_allclose(finish_times(cost_DM, 1), cost_DM.sum(axis=1))


@given(pipelines())
def test_finish_times_for_any_costs_lie_between_their_bounds(case: tuple[np.ndarray, int]) -> None:
    cost_DM, num_stages = case
    time_D, sum_D, most_D = finish_times(cost_DM, num_stages), cost_DM.sum(axis=1), cost_DM.max(axis=1)

    assert (time_D >= np.maximum(sum_D / num_stages, most_D) * (1 - 1e-9)).all()
    num = cost_DM.shape[1]
    assert (time_D <= (num + num_stages - 1) * most_D / num_stages * (1 + 1e-9)).all()


@given(pipelines(), st.data())
def test_finish_times_when_a_microbatch_grows_never_fall(case: tuple[np.ndarray, int], data: st.DataObject) -> None:
    cost_DM, num_stages = case
    rank, m = (data.draw(st.integers(0, size - 1)) for size in cost_DM.shape)
    grown_DM = cost_DM.copy()
    grown_DM[rank, m] += data.draw(COSTS)

    before_D, after_D = finish_times(cost_DM, num_stages), finish_times(grown_DM, num_stages)

    assert (after_D >= before_D * (1 - 1e-12)).all()
    others = np.arange(len(cost_DM)) != rank
    np.testing.assert_array_equal(after_D[others], before_D[others])


@given(st.integers(1, 6), st.integers(1, 9))
def test_schedule_for_any_sizes_holds_every_operation_after_what_it_waits_for(num_stages: int, num: int) -> None:
    done = {operation: at for at, operation in enumerate(schedule(num_stages, num))}

    assert len(done) == 2 * num_stages * num
    for operation, at in done.items():
        source = operation.stage + (1 if operation.is_backward else -1)
        if 0 <= source < num_stages:
            assert done[operation._replace(stage=source)] < at
        if operation.is_backward:
            assert done[operation._replace(is_backward=False)] < at


def test_stage_order_of_the_last_stage_alternates() -> None:
    kinds = [operation.is_backward for operation in stage_order(3, 4, 5)]
    assert kinds == [False, True] * 5


def test_finish_times_when_a_microbatch_is_shared_begin_it_together() -> None:
    cost_DM, spread_DM = np.array([[5.0, 1.0], [1.0, 1.0]]), np.array([[1, 2], [1, 2]])

    assert finish_times(cost_DM, 1).tolist() == [6.0, 2.0]
    # the second rank waits for the first before the shared forward pass
    np.testing.assert_allclose(finish_times(cost_DM, 1, spread_DM=spread_DM), [6.0, 6.0])


@pytest.mark.parametrize(
    ("cost_DM", "spread_DM", "rule"),
    [
        ([[1.0, np.nan]], None, "finite"),
        ([[1.0, -1.0]], None, "at least 0"),
        ([1.0, 2.0], None, "shape"),
        ([[1.0], [1.0]], [[2], [1]], "all ranks of a group"),
        ([[1.0], [1.0], [1.0]], [[2], [2], [2]], "divide the 3 ranks"),
    ],
)
def test_finish_times_when_the_input_is_wrong_name_the_rule(cost_DM: object, spread_DM: object, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        finish_times(np.array(cost_DM), 1, spread_DM=None if spread_DM is None else np.array(spread_DM))
