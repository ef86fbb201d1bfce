"""A step's pieces depend on nothing but data, spec and step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadmaster_server.planning import Demand, PlannerState, StreamPlanner

Make = Callable[..., Any]
FIXTURES = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _lengths(seed: int, num: int = 120) -> list[int]:
    rng = np.random.default_rng(seed)
    lengths = (1 + rng.lognormal(5.5, 1.3, num)).astype(int)
    return np.where(rng.random(num) < 0.1, 0, lengths).tolist()


def _shuffled(seed: int) -> Callable[..., None]:
    """Answers demands lane by lane in any order, in batches of any size, some of them twice."""
    rng = np.random.default_rng(seed)

    def feed(planner: StreamPlanner, sources: Sequence[Any], demands: list[Demand]) -> None:
        lanes = [(demand, at) for demand in demands for at in range(len(demand.cursors))]
        for i in rng.permutation(len(lanes)):
            demand, at = lanes[i]
            batch = sources[demand.source].answer(demand, at)
            cuts = [0, *sorted(rng.integers(0, batch.num_rows + 1, 2).tolist()), batch.num_rows]
            parts = [batch[a:b] for a, b in itertools.pairwise(cuts)]
            for part in parts + parts[: int(rng.integers(0, 2))]:
                planner.feed(part)

    return feed


MESHES = (
    {"dp": 1},
    {"dp": 2, "tp": 4},
    {"pp": 4, "dp": 2},
    {"dp": 4, "cp": 2},
    {"cp": 4, "tp": 2, "dp": 4, "pp": 3},
    {"dp": 8},
)
STRATEGIES = ("llm_balance", "sequential", "bins_by_cost", "vlm_hybrid", "long_short_context")


@pytest.mark.parametrize("layout", ["pack", "concat", "pad"])
def test_pieces_of_a_step_when_the_mesh_changes_then_they_are_the_same(
    make_rig: Make, spec_of: Make, pieces_of: Make, layout: str
) -> None:
    spec = spec_of(3, weights=[0.5, 0.3, 0.2], seq_len=512, layout=layout)
    runs = [make_rig(spec, [_lengths(s) for s in range(3)], dp=mesh).steps(30) for mesh in MESHES]
    for plans in zip(*runs, strict=True):
        assert all(pieces_of(plan) == pieces_of(plans[0]) for plan in plans)
        assert len({plan.global_valid_tokens for plan in plans}) == 1
        assert len({plan.digest for plan in plans}) >= 4


@FIXTURES
@given(
    seed=st.integers(0, 2**32),
    layout=st.sampled_from(["pack", "concat", "pad"]),
    first=st.tuples(st.sampled_from(MESHES), st.sampled_from(STRATEGIES)),
    second=st.tuples(st.sampled_from(MESHES), st.sampled_from(STRATEGIES)),
)
def test_pieces_of_a_step_when_mesh_and_strategy_change_then_they_and_the_state_are_the_same(
    make_rig: Make,
    spec_of: Make,
    pieces_of: Make,
    seed: int,
    layout: str,
    first: tuple[dict[str, int], str],
    second: tuple[dict[str, int], str],
) -> None:
    lengths = [_lengths(seed + s, 60) for s in range(2)]
    rigs = [
        make_rig(spec_of(2, seq_len=256, layout=layout, until={"epochs": 1}, strategy=strategy), lengths, dp=mesh)
        for mesh, strategy in (first, second)
    ]
    for a, b in zip(*(rig.steps() for rig in rigs), strict=True):
        assert pieces_of(a) == pieces_of(b)
        assert (a.is_final, a.global_valid_tokens) == (b.is_final, b.global_valid_tokens)
    assert rigs[0].planner.state().to_bytes() == rigs[1].planner.state().to_bytes()


def test_plans_when_made_twice_then_their_digests_are_equal(make_rig: Make, spec_of: Make) -> None:
    first, second = (make_rig(spec_of(2, seq_len=512), [_lengths(1), _lengths(2)], dp=2).steps(20) for _ in range(2))
    assert [plan.digest for plan in first] == [plan.digest for plan in second]
    assert len({plan.digest for plan in first}) == 20


@FIXTURES
@given(seed=st.integers(0, 2**32), lanes=st.integers(1, 6), layout=st.sampled_from(["pack", "concat", "pad"]))
def test_plans_when_metadata_arrives_in_any_way_then_they_are_the_same(
    make_rig: Make, spec_of: Make, fake_source: Make, seed: int, lanes: int, layout: str
) -> None:
    spec = spec_of(2, weights=[0.8, 0.2], seq_len=256, layout=layout, until={"epochs": 2})
    fakes = [fake_source(_lengths(seed + s, 80), lanes, 8) for s in range(2)]
    plainly = make_rig(spec, fakes).steps()
    anyhow = make_rig(spec, fakes, feeder=_shuffled(seed)).steps()
    assert [plan.digest for plan in plainly] == [plan.digest for plan in anyhow]


@FIXTURES
@given(
    seed=st.integers(0, 2**32),
    lanes=st.integers(1, 5),
    layout=st.sampled_from(["pack", "concat", "pad"]),
    unit=st.sampled_from(["tokens", "samples"]),
    stop_after=st.integers(0, 12),
)
def test_plans_when_restored_from_bytes_after_any_step_then_the_rest_is_the_same(
    make_rig: Make, spec_of: Make, fake_source: Make, seed: int, lanes: int, layout: str, unit: str, stop_after: int
) -> None:
    seq_len = [{"at": 0, "value": 512}, {"at": 6, "value": 128}, {"at": 9, "value": 640}]
    spec = spec_of(2, weights=[0.8, 0.2], seq_len=seq_len, layout=layout, unit=unit, until={"epochs": 3})
    fakes = [fake_source(_lengths(seed + s, 60), lanes, 8) for s in range(2)]
    whole = make_rig(spec, fakes).steps()
    before = make_rig(spec, fakes)
    first = before.steps(stop_after)
    data = before.planner.state().to_bytes()
    after = make_rig(spec, fakes, state=PlannerState.from_bytes(data), feeder=_shuffled(seed))
    assert after.planner.state().to_bytes() == data
    rest = after.steps()
    assert [plan.digest for plan in first + rest] == [plan.digest for plan in whole]


def test_step_when_metadata_is_missing_then_nothing_changes(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(2, seq_len=512), [_lengths(1), _lengths(2)])
    before = rig.planner.state().to_bytes()
    rig.next()
    fresh = make_rig(spec_of(2, seq_len=512), [_lengths(1), _lengths(2)])
    assert fresh.planner.demands()
    assert fresh.planner.state().to_bytes() == before
