"""How streams and sources end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.errors import ConflictError, DataError, MeshError, NotFoundError

Make = Callable[..., Any]


def _samples(plans: list[Any]) -> list[tuple[int, ...]]:
    keys = []
    for plan in plans:
        p = plan.pieces
        whole = p.first_token == 0
        keys += zip(*(c[whole].tolist() for c in (p.source, p.epoch, p.shard, p.pos)), strict=True)
    return sorted(keys)


def _is_final(plans: list[Any]) -> list[bool]:
    return [plan.is_final for plan in plans]


def test_stream_when_until_steps_is_reached_then_it_ends_and_the_rest_is_counted(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(2, until={"steps": 4}), [[100] * 50, [2500] * 50])
    assert _is_final(rig.steps()) == [False, False, False, True]
    unserved, queue = rig.planner.unserved(), rig.planner.state().queue
    head = rig.planner.state().sources[1]
    assert head.head_offset > 0
    assert unserved.tokens_S.sum() == queue.tokens_N.sum() + 2500 - head.head_offset
    assert unserved.pieces_S.sum() == len(queue) + 1
    with pytest.raises(ConflictError, match="step 3 was its last"):
        rig.planner.plan_next()


def test_stream_when_until_tokens_is_reached_then_that_step_is_its_last(make_rig: Make, spec_of: Make) -> None:
    plans = make_rig(spec_of(1, until={"tokens": 20_000}), [[1024] * 50]).steps()
    assert [plan.num_tokens for plan in plans] == [8192, 8192, 8192]
    assert _is_final(plans) == [False, False, True]


def test_stream_when_epochs_and_steps_are_given_then_the_first_ends_it(make_rig: Make, spec_of: Make) -> None:
    assert len(make_rig(spec_of(1, until={"epochs": 1, "steps": 90}), [[1024] * 20]).steps()) == 3
    assert len(make_rig(spec_of(1, until={"epochs": 100, "steps": 2}), [[1024] * 20]).steps()) == 2


@pytest.mark.parametrize("layout", ["pack", "concat", "pad"])
@pytest.mark.parametrize("num", [1, 7, 8, 9, 16])
def test_stream_when_data_ends_at_or_near_a_step_then_the_last_step_knows(
    make_rig: Make, spec_of: Make, layout: str, num: int
) -> None:
    plans = make_rig(spec_of(1, layout=layout, until={"epochs": 1}), [[1024] * num]).steps()
    assert _is_final(plans) == [False] * (-(-num // 8) - 1) + [True]
    assert len(_samples(plans)) == num
    assert all(np.bincount(plan.pieces.bin, minlength=8).min() > 0 for plan in plans[:-1])


def test_stream_when_the_last_rows_are_skipped_then_they_are_counted_and_the_end_is_known(
    make_rig: Make, spec_of: Make
) -> None:
    rig = make_rig(spec_of(1, layout="pad", until={"epochs": 1}), [[100] * 8 + [0] * 5])
    assert _is_final(rig.steps()) == [True]
    assert [row["reason"] for row in rig.planner.new_verdicts().to_pylist()] == ["empty text"] * 5


def test_source_when_max_epochs_is_reached_then_the_others_take_its_share(make_rig: Make, spec_of: Make) -> None:
    spec = spec_of(3, source=[{"max_epochs": 1}, {"max_epochs": 2}, {}])
    rig = make_rig(spec, [[300] * 40, [200] * 40, [100] * 40])
    plans = []
    while not all(source.is_exhausted for source in rig.planner.state().sources[:2]):
        plans.append(rig.next())
        assert sum(rig.planner.state().credit_S) == 0
    plans += rig.steps(3)
    samples = _samples(plans)
    assert sum(source == 0 for source, *_ in samples) == 40
    assert sum(source == 1 for source, *_ in samples) == 80
    assert plans[-1].weights_S.tolist() == [0, 0, 1 << 30]
    assert not rig.planner.is_over


@pytest.mark.parametrize("layout", ["pack", "concat", "pad"])
def test_source_when_exhausted_with_stop_then_the_queue_is_drained_and_the_stream_ends(
    make_rig: Make, spec_of: Make, layout: str
) -> None:
    spec = spec_of(2, layout=layout, source=[{"max_epochs": 1, "on_exhausted": "stop"}, {}])
    rig = make_rig(spec, [[700] * 30, [900] * 30])
    plans = rig.steps()
    assert _is_final(plans) == [False] * (len(plans) - 1) + [True]
    assert sum(source == 0 for source, *_ in _samples(plans)) == 30
    assert rig.planner.unserved().tokens_S.tolist() == [0, 0]


def test_queue_when_the_stream_stops_and_steps_shrink_then_it_is_drained_over_several_steps(
    make_rig: Make, spec_of: Make
) -> None:
    bins = [{"at": 0, "value": 8}, {"at": 1, "value": 1}]
    spec = spec_of(1, microbatches=bins, until={"epochs": 1})
    plans = make_rig(spec, [[600] * 12]).steps()
    assert [len(plan.pieces) for plan in plans] == [8, 1, 1, 1, 1]
    assert _is_final(plans) == [False] * 4 + [True]


def test_source_when_exhausted_with_error_then_it_is_named_and_nothing_changes(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(2, source=[{"max_epochs": 1, "on_exhausted": "error"}, {}]), [[800] * 20, [800] * 20])
    with pytest.raises(DataError, match="source s0 is exhausted after max_epochs 1 at step"):
        rig.steps()
    state = rig.planner.state()
    assert state.step > 0
    assert not state.is_over
    with pytest.raises(DataError):
        rig.planner.plan_next()
    assert rig.planner.state() is state


def test_until_epochs_when_a_source_would_end_in_error_with_it_then_it_ends_in_peace(
    make_rig: Make, spec_of: Make
) -> None:
    spec = spec_of(1, source={"max_epochs": 1, "on_exhausted": "error"}, until={"epochs": 1})
    assert _is_final(make_rig(spec, [[800] * 4]).steps()) == [True]


def test_evaluation_when_run_then_each_sample_of_its_sources_comes_once(make_rig: Make, spec_of: Make) -> None:
    lengths = np.random.default_rng(0).integers(1, 3000, (3, 70)).tolist()
    spec = spec_of(
        3, weights=[1.0, 0.0, 0.0], evaluation={"held-out": {"sources": ["s1", "s2"], "microbatches": 4}},
        until={"steps": 1},
    )  # fmt: skip
    rig = make_rig(spec, lengths, stream="held-out", dp=4)
    plans = rig.steps()
    assert {plan.num_bins for plan in plans} == {4}
    expected = [(s, 0, i // 16, i % 16) for s in (1, 2) for i in range(70)]
    assert _samples(plans) == expected
    assert sum(plan.num_tokens for plan in plans) == sum(map(sum, lengths[1:]))
    assert _is_final(plans) == [False] * (len(plans) - 1) + [True]


def test_stream_when_unknown_then_the_known_ones_are_named(make_rig: Make, spec_of: Make) -> None:
    with pytest.raises(NotFoundError, match=r"no stream 'test'; streams are \['train'\]"):
        make_rig(spec_of(1), [[1]], stream="test")


@pytest.mark.parametrize(
    ("bins", "g_multiple", "dp", "message"),
    [
        (6, 1, 4, "got 6 % 4 at step 0"),
        ([{"at": 0, "value": 8}, {"at": 70, "value": 12}], 1, 8, "got 12 % 8 at step 70"),
        ([{"at": 0, "value": 8, "shape": "linear"}, {"at": 8, "value": 16}], 1, 8, "got 9 % 8 at step 1"),
        (8, 1, 0, "dp must be at least 1"),
    ],
)
def test_planner_when_dp_does_not_divide_g_then_it_names_g_dp_and_step(
    make_rig: Make, spec_of: Make, bins: Any, g_multiple: int, dp: int, message: str
) -> None:
    with pytest.raises(MeshError, match=message):
        make_rig(spec_of(1, microbatches=bins, g_multiple=g_multiple), [[1]], dp=dp)


def test_planner_when_a_ramp_is_rounded_to_dp_then_it_is_accepted(make_rig: Make, spec_of: Make) -> None:
    bins = [{"at": 0, "value": 8, "shape": "linear"}, {"at": 8, "value": 24}]
    rig = make_rig(spec_of(1, microbatches=bins, g_multiple=8), [[500] * 100], dp=8)
    assert [plan.num_bins for plan in rig.steps(9)] == [8, 8, 8, 8, 16, 16, 16, 16, 24]
