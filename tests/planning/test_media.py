"""Samples with media: their units in plans, in the state, and those that no microbatch holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.errors import DataError, InternalError
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.step_plan import StepPlan, Units
from loadmaster_server.planning import Demand, PlannerState, StreamPlanner
from loadmaster_server.planning.conservation import check_step, check_units
from loadmaster_server.planning.rules import rules_of
from loadmaster_server.planning.strategies import BUILT_IN

Make = Callable[..., Any]
FIXTURES = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MESHES = ({"dp": 1}, {"dp": 2, "tp": 2}, {"pp": 2, "dp": 2}, {"dp": 4, "cp": 2}, {"dp": 4})
REASON = "longer than a microbatch, and media cannot be cut"


@pytest.fixture
def make_spec(spec_of: Make) -> Make:
    """A run of sources with images."""

    def make(num_sources: int = 2, **fields: Any) -> RunSpec:
        spec = spec_of(num_sources, **({"seq_len": 512} | fields))
        return RunSpec.model_validate(spec.model_dump(mode="json") | {"media": {"vision": {}}})

    return make


@pytest.fixture
def make_fake(fake_source: Make) -> Make:
    """A source of texts, images and sounds; every third sample is a text."""

    def make(seed: int, num: int = 60, lanes: int = 2, longest: int = 400) -> Any:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, longest, num).tolist()
        units = {i: rng.integers(4, 4096, int(rng.integers(0, 5))).tolist() for i in range(num) if i % 3}
        return fake_source(lengths, lanes, 8, patches=units)

    return make


def _patches_of(sources: Sequence[Any], plan: StepPlan) -> list[list[int]]:
    """Patches of the units of each piece of a plan."""
    places = zip(plan.pieces.source.tolist(), plan.pieces.shard.tolist(), plan.pieces.pos.tolist(), strict=True)
    return [sources[s].patches.get(shard * sources[s].rows_per_shard + pos, []) for s, shard, pos in places]


def _anyhow(seed: int) -> Callable[..., None]:
    """Answers demands lane by lane in any order and in pieces."""
    rng = np.random.default_rng(seed)

    def feed(planner: StreamPlanner, sources: Sequence[Any], demands: list[Demand]) -> None:
        lanes = [(demand, at) for demand in demands for at in range(len(demand.cursors))]
        for i in rng.permutation(len(lanes)):
            demand, at = lanes[i]
            batch = sources[demand.source].answer(demand, at)
            cuts = [0, *sorted(rng.integers(0, batch.num_rows + 1, 2).tolist()), batch.num_rows]
            for a, b in itertools.pairwise(cuts):
                planner.feed(batch[a:b])

    return feed


@FIXTURES
@given(
    seed=st.integers(0, 2**32),
    mesh=st.sampled_from(MESHES),
    layout=st.sampled_from(["pack", "pad"]),
    strategy=st.sampled_from(sorted(BUILT_IN)),
)
def test_units_when_planned_then_each_goes_to_one_rank_or_all_go_with_their_documents(
    make_rig: Make, make_spec: Make, make_fake: Make, seed: int, mesh: dict[str, int], layout: str, strategy: str
) -> None:
    spec = make_spec(layout=layout, rows=2 if layout == "pad" else 1, until={"epochs": 2}, strategy=strategy)
    fakes = [make_fake(seed), make_fake(seed + 1)]
    world, served = int(np.prod(list(mesh.values()))), 0
    for plan in make_rig(spec, fakes, dp=mesh).steps():
        patches = _patches_of(fakes, plan)
        counts = [len(units) if strategy == "vlm_hybrid" else 0 for units in patches]
        assert plan.units.piece_U.tolist() == np.repeat(np.arange(len(patches)), counts).tolist()
        assert plan.is_hybrid is (strategy == "vlm_hybrid")
        assert ((plan.units.rank_U >= 0) & (plan.units.rank_U < world)).all()
        served += sum(map(len, patches))
    assert served == 2 * sum(len(units) for fake in fakes for units in fake.patches.values())


@FIXTURES
@given(seed=st.integers(0, 2**32), lanes=st.integers(1, 4), stop_after=st.integers(0, 8))
def test_plans_when_restored_with_images_in_the_queue_and_rows_arrive_anyhow_then_the_rest_is_the_same(
    make_rig: Make, make_spec: Make, make_fake: Make, seed: int, lanes: int, stop_after: int
) -> None:
    spec = make_spec(weights=[0.7, 0.3], until={"epochs": 2}, strategy="vlm_hybrid")
    fakes = [make_fake(seed + s, lanes=lanes) for s in range(2)]
    whole = make_rig(spec, fakes, dp={"dp": 2, "tp": 2}).steps()
    before = make_rig(spec, fakes, dp={"dp": 2, "tp": 2})
    first = before.steps(stop_after)
    data = before.planner.state().to_bytes()
    state = PlannerState.from_bytes(data)
    assert state.to_bytes() == data
    after = make_rig(spec, fakes, dp={"dp": 2, "tp": 2}, state=state, feeder=_anyhow(seed))
    assert [plan.digest for plan in first + after.steps()] == [plan.digest for plan in whole]


def test_units_when_the_mesh_changes_then_only_their_ranks_do(
    make_rig: Make, make_spec: Make, make_fake: Make, pieces_of: Make
) -> None:
    spec, fakes = make_spec(strategy="vlm_hybrid"), [make_fake(0), make_fake(1)]
    runs = [make_rig(spec, fakes, dp=mesh).steps(12) for mesh in MESHES]
    for plans in zip(*runs, strict=True):
        assert all(pieces_of(plan) == pieces_of(plans[0]) for plan in plans)
        assert all(np.array_equal(plan.units.piece_U, plans[0].units.piece_U) for plan in plans)
        assert len({tuple(plan.units.rank_U.tolist()) for plan in plans}) >= 4


def test_units_when_a_step_of_a_hybrid_run_has_no_images_then_it_is_hybrid_all_the_same(
    make_rig: Make, make_spec: Make, spec_of: Make
) -> None:
    (plan,) = make_rig(make_spec(1, strategy="vlm_hybrid"), [[300] * 90]).steps(1)
    assert (len(plan.units), plan.is_hybrid) == (0, True)
    text, balanced = (
        make_rig(spec_of(1, strategy=strategy), [[300] * 90]).next() for strategy in ("vlm_hybrid", "llm_balance")
    )
    assert not text.is_hybrid
    assert text.digest == balanced.digest


def test_encoders_when_there_are_many_images_then_the_world_is_even(make_rig: Make, make_spec: Make) -> None:
    rng = np.random.default_rng(0)
    images = {i: rng.integers(64, 1024, 6).tolist() for i in range(600)}
    seen = []
    spec = make_spec(1, strategy="vlm_hybrid", microbatches=16, seq_len=2048)
    rig = make_rig(spec, [[200] * 600], dp={"dp": 4, "tp": 2})
    fake = replace(rig.sources[0], patches=images)
    planner = StreamPlanner(spec, "train", [fake.lanes], {"dp": 4, "tp": 2}, on_placed=seen.append)
    replace(rig, sources=[fake], planner=planner).steps(3)
    for graph in seen:
        load_W = np.bincount(graph.image_rank_K, weights=graph.encoder_cost(graph.images.patches_K), minlength=8)
        assert load_W.max() <= 1.03 * load_W.mean()


@pytest.mark.parametrize("over_long", ["split", "skip"])
@pytest.mark.parametrize("layout", ["pack", "pad"])
def test_sample_with_media_when_longer_than_a_microbatch_then_it_is_skipped_and_text_is_not(
    make_rig: Make, make_spec: Make, fake_source: Make, layout: str, over_long: str
) -> None:
    lengths = [100, 600, 512, 700, 600, 0] * 10
    patches = {i: [] if i == 4 else [16] * 3 for i in range(60) if i % 6 in (1, 2, 4)}
    spec = make_spec(1, layout=layout, over_long=over_long, until={"epochs": 1}, microbatches=4)
    rig = make_rig(spec, [fake_source(lengths, 2, 6, patches=patches)])
    plans = rig.steps()
    rows = rig.planner.new_verdicts().select(["row", "verdict", "reason", "num_tokens"]).to_pylist()
    why = {row["row"]: (row["verdict"], row["reason"], row["num_tokens"]) for row in rows}
    assert why[1] == why[4] == (Verdict.SKIPPED, REASON, 600)
    text = {3: (Verdict.SKIPPED, "longer than 512 tokens, and over_long is skip", 700)} if over_long == "skip" else {}
    assert why == {1: why[1], 4: why[4], 5: (Verdict.SKIPPED, "empty text", 0)} | text
    assert len(rows) == 10 * len(why)
    served = 10 * (100 + 512 + (700 if over_long == "split" else 0))
    assert sum(plan.num_tokens for plan in plans) == served
    learned = rig.planner.state().sources[0].learned
    assert learned == (60, 10 * (2 + (over_long == "split")), served)


def test_sample_with_media_when_later_steps_are_shorter_then_it_must_fit_these_too(
    make_rig: Make, make_spec: Make, fake_source: Make
) -> None:
    knots = [{"at": 0, "value": 512}, {"at": 4, "value": 256}, {"at": 6, "value": 1024}]
    fake = fake_source([300, 100] * 200, 2, 8, patches={i: [64] for i in range(0, 400, 2)})
    rig = make_rig(make_spec(1, seq_len=knots, until={"steps": 9}), [fake])
    long = [int((rig.tokens_of(plan) == 300).sum()) for plan in rig.steps()]
    assert long[:6] == [0] * 6
    assert min(long[6:]) > 0
    shape = rules_of(make_spec(1, seq_len=knots), "train").shape_at
    assert [shape(step).limits.media for step in (0, 4, 5, 6, 9)] == [256, 256, 256, 1024, 1024]


def test_queue_when_it_holds_media_longer_than_a_changed_schedule_then_the_sample_is_named(
    make_rig: Make, make_spec: Make, fake_source: Make
) -> None:
    fake = fake_source([400] * 100, 2, 8, patches={i: [64] for i in range(100)})
    rig = make_rig(make_spec(1, overdraw=0.5), [fake])
    rig.steps(2)
    assert len(rig.planner.state().queue)
    again = make_rig(make_spec(1, seq_len=256), [fake], state=rig.planner.state())
    with pytest.raises(DataError, match=r"queued samples with media, which cannot be cut, got 256 for 400 .* shard"):
        again.next()


def test_epoch_when_all_samples_are_too_long_for_media_then_the_reason_is_told(
    make_rig: Make, make_spec: Make, fake_source: Make
) -> None:
    rig = make_rig(make_spec(1), [fake_source([600] * 20, 2, 8, patches={i: [64] for i in range(20)})])
    with pytest.raises(DataError, match=f"every row of an epoch was skipped: reasons {REASON}"):
        rig.next()


def test_rows_when_nothing_has_media_then_no_patches_are_kept(make_rig: Make, spec_of: Make) -> None:
    seen = []
    rig = make_rig(spec_of(1), [[300] * 90])
    planner = StreamPlanner(rig.spec, "train", [2], 1, on_placed=seen.append)
    replace(rig, planner=planner).steps(3)
    assert planner.state().queue.patches.is_nothing
    assert all(len(graph.images) == 0 for graph in seen)


@pytest.mark.parametrize(
    ("piece_U", "rank_U", "message"),
    [
        ([0, 0], [0, 1], "3 units must be placed in order, got 2"),
        ([0, 2, 0], [0, 1, 1], "must be placed in order"),
        ([0, 0, 0], [0, 1, 1], "piece 0 must have 2 units placed, got 3"),
        ([0, 0, 1], [0, 1, 1], "piece 1 must have 0 units placed, got 1"),
        ([0, 0, 3], [0, 1, 1], "piece 2 must have 1 units placed, got 0"),
        ([0, 0, 2], [0, 4, 1], r"ranks in \[0, 4\), got 4 for one of piece 0"),
        ([0, 0, 2], [0, 0, -1], r"got -1 for one of piece 2"),
    ],
)
def test_check_when_units_are_lost_repeated_or_go_nowhere_then_the_step_and_rule_are_named(
    make_rig: Make, make_spec: Make, fake_source: Make, piece_U: list[int], rank_U: list[int], message: str
) -> None:
    pieces = _drawn(make_rig, make_spec, fake_source)
    check_units(pieces, Units(piece_U=np.array([0, 0, 2]), rank_U=np.array([0, 3, 1])), 4, 5)
    with pytest.raises(InternalError, match=f"step 5: .*{message}"):
        check_units(pieces, Units(piece_U=np.array(piece_U), rank_U=np.array(rank_U)), 4, 5)


def _drawn(make_rig: Make, make_spec: Make, fake_source: Make) -> Any:
    """Three queued pieces with 2, 0 and 1 units."""
    fake = fake_source([400] * 99, 1, 99, patches={i: [[16, 64], [], [32]][i % 3] for i in range(99)})
    rig = make_rig(make_spec(1, overdraw=0.5), [fake])
    rig.next()
    queue = rig.planner.state().queue.take(np.arange(1, 4))
    assert queue.patches.count_N.tolist() == [2, 0, 1]
    return queue


def test_check_when_patches_come_to_another_sample_then_it_fails(
    make_rig: Make, make_spec: Make, fake_source: Make
) -> None:
    offered = _drawn(make_rig, make_spec, fake_source)
    shape = rules_of(make_spec(1), "train").shape_at(0)
    bin_N = np.arange(3)
    check_step(offered, offered, bin_N, offered.take(np.zeros(0, np.int64)), shape, may_be_short=True)
    spoiled = replace(offered, patches=offered.patches.take(np.array([2, 1, 0])))
    with pytest.raises(InternalError, match="placed and queued pieces must be those offered"):
        check_step(offered, spoiled, bin_N, offered.take(np.zeros(0, np.int64)), shape, may_be_short=True)
