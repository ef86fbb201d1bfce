"""Which steps are kept and built next, as ranks open and acknowledge."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.constructor.window import BuiltStep, StepWindow
from loadmaster_flight.wire.skipping import Skip


def built(step: int, size: int = 8) -> BuiltStep:
    return BuiltStep(step=step, batches={0: pa.record_batch({"x": pa.array([0] * (size // 8), pa.int64())})})


def window(*, ranks: int = 2, first_step: int = 0, build_ahead: int = 3, budget_bytes: int = 1 << 20) -> StepWindow:
    return StepWindow(list(range(ranks)), first_step=first_step, build_ahead=build_ahead, budget_bytes=budget_bytes)


def fill(w: StepWindow) -> list[int]:
    steps = []
    while (step := w.next_missing()) is not None:
        w.put(built(step))
        steps.append(step)
    return steps


def test_window_when_nothing_is_acknowledged_then_build_ahead_steps_are_built() -> None:
    assert fill(window(first_step=5)) == [5, 6, 7]


def test_window_when_one_rank_acknowledges_then_the_slowest_holds_it() -> None:
    w = window()
    fill(w)
    w.acknowledge(0, 2)
    assert w.next_missing() is None
    assert w.slowest() == [1]
    w.acknowledge(1, 1)
    assert (w.acknowledged, fill(w)) == (1, [3])
    assert w.get(0) is None


def test_window_when_a_rank_opens_ahead_then_steps_before_are_not_built_but_not_acknowledged() -> None:
    w = window(ranks=1)
    w.open(0, 40)
    assert (fill(w), w.acknowledged) == ([40, 41, 42], 0)


def test_window_when_a_rank_opens_behind_then_missing_steps_are_built_again() -> None:
    w = window(ranks=1)
    w.open(0, 40)
    fill(w)
    w.open(0, 39)
    assert fill(w) == [39]


def test_window_when_the_budget_is_below_one_step_then_one_is_built_still() -> None:
    w = window(ranks=1, budget_bytes=1)
    assert fill(w) == [0]
    w.acknowledge(0, 1)
    assert fill(w) == [1]


def test_window_when_the_budget_holds_two_steps_then_two_are_built() -> None:
    assert fill(window(budget_bytes=16)) == [0, 1]


def test_window_when_the_end_is_known_then_nothing_is_built_after_it() -> None:
    w = window(ranks=1)
    w.end = 2
    assert fill(w) == [0, 1]
    assert w.is_over(2)
    assert not w.is_over(1)


def test_window_when_a_step_comes_too_late_then_it_is_not_kept() -> None:
    w = window(ranks=1)
    w.acknowledge(0, 5)
    w.put(built(4))
    assert w.num_built == 0


@given(
    acks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=40),
    build_ahead=st.integers(1, 4),
    budget_bytes=st.integers(0, 64),
)
def test_window_when_ranks_acknowledge_in_any_order_then_the_slowest_always_finds_its_step(
    acks: list[tuple[int, int]], build_ahead: int, budget_bytes: int
) -> None:
    w = window(ranks=3, build_ahead=build_ahead, budget_bytes=budget_bytes)
    reached = [0, 0, 0]
    for rank, step in acks:
        w.acknowledge(rank, step)
        reached[rank] = max(reached[rank], step)
        fill(w)
        assert w.acknowledged == min(reached)
        assert w.get(min(reached)) is not None
        assert w.num_built <= build_ahead


def test_window_when_steps_are_skipped_then_those_behind_them_are_built_instead() -> None:
    w = StepWindow([0, 1], first_step=5, build_ahead=4, budget_bytes=1 << 20, skip=Skip(first=7, last=50))
    assert fill(w) == [5, 6, 50, 51]
    w.acknowledge(0, 7)
    w.acknowledge(1, 7)
    assert (w.low, w.acknowledged, fill(w)) == (50, 50, [52, 53])


def test_window_when_it_begins_with_skipped_steps_then_stands_behind_them() -> None:
    w = StepWindow([0], first_step=5, build_ahead=2, budget_bytes=1 << 20, skip=Skip(first=5, last=9))
    assert (w.low, w.acknowledged, fill(w)) == (9, 9, [9, 10])


def test_window_when_the_stream_ends_within_what_is_skipped_then_it_is_over_there() -> None:
    w = StepWindow([0], first_step=5, build_ahead=4, budget_bytes=1 << 20, skip=Skip(first=6, last=9))
    w.end = 9
    assert fill(w) == [5]
    assert w.is_over(w.skip.after(5))
