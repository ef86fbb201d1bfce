"""Standing by: what is kept warm, within which budget, and what it is worth when the owner is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loadmaster_flight.loader.engine import LoaderEngine
from loadmaster_flight.loader.runs import OpenRuns
from loadmaster_flight.loader.shadow import Shadows
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.control import Lease, StreamProgress
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.step_plan import StepPlan

PROSE, LANES, PER_STEP, STEPS = 0, 3, 12, 20
STANDBY = Lease(run="small", source=PROSE, partition=0, partitions=1, is_standby=True)
OWNED = Lease(run="small", source=PROSE, partition=0, partitions=1)


class Bench:
    """Shadows over a fake planner that has planned STEPS steps of the source PROSE."""

    def __init__(self, planner: Any, runs: OpenRuns, plans: list[StepPlan]) -> None:
        self.planner, self.runs, self.plans = planner, runs, plans
        planner.plans[1] = {plan.step: plan for plan in plans}
        self.shadows = Shadows(planner.url, runs)

    def follow(self, *leases: Lease, step: int = 0) -> None:
        progress = StreamProgress(run="small", stream="train", generation=1, step=step)
        self.shadows.follow(list(leases), [progress] if leases else [])

    @property
    def engine(self) -> LoaderEngine:
        engine = self.runs.engine_if_open("small")
        assert engine is not None
        return engine


@pytest.fixture
def bench(
    make_planner: Any, make_run: Callable[..., Any], make_engine: Callable[..., LoaderEngine], plan_of: Any
) -> Iterator[Callable[..., Bench]]:
    """Makes benches; keyword arguments are budgets."""
    made: list[Bench] = []

    def make(**budgets: int) -> Bench:
        spec, manifests = make_run()
        spec = with_budgets(spec, window_bytes=1 << 20, bind_ahead=8)
        rows: list[dict[str, Any]] = []
        with LoaderEngine(spec, manifests, cache_dir=None, workers=1) as other:
            for lane in range(LANES):
                rows += other.measure(PROSE, 0, [[lane, 0, 0, 0]], 100).to_pylist()
        kept = [row for row in rows if row["verdict"] == Verdict.OK]
        plans = [plan_of(step, kept[step * PER_STEP : (step + 1) * PER_STEP]) for step in range(STEPS)]
        planner = make_planner((spec, manifests))
        runs = OpenRuns(planner.url, lambda s, m: LoaderEngine(with_budgets(s, **budgets), m, cache_dir=None))
        made.append(Bench(planner, runs, plans))
        return made[-1]

    yield make
    for one in made:
        one.shadows.close()
        one.runs.close()


def test_shadow_when_it_stands_by_then_the_next_steps_are_warm_and_counted(
    bench: Callable[..., Bench], wait_until: Callable[..., None]
) -> None:
    one = bench()
    one.follow(STANDBY)
    wait_until(lambda: one.shadows.warm() == [STANDBY], "the shadow to be warm")
    stats = one.shadows.stats()
    assert (stats["shadow_partitions"], stats["shadow_steps"], stats["shadow_failures"]) == (1, 8, 0)
    assert 0 < stats["shadow_bytes"] <= one.engine.stats()["window_bytes"]


def test_shadow_when_steps_are_released_then_it_moves_on_and_does_not_grow(
    bench: Callable[..., Bench], wait_until: Callable[..., None]
) -> None:
    one = bench()
    sizes = []
    for step in range(0, STEPS - 8, 2):
        one.follow(STANDBY, step=step)
        wait_until(lambda step=step: {k.step for k in kept_keys(one)} == set(range(step, step + 8)), "to follow")
        sizes.append(one.engine.stats()["window_bytes"])
    assert max(sizes) < 2 * sizes[0]


def test_shadow_when_promoted_then_the_next_steps_are_read_no_more(
    bench: Callable[..., Bench], wait_until: Callable[..., None]
) -> None:
    one = bench()
    one.follow(STANDBY, step=4)
    wait_until(lambda: bool(one.shadows.warm()), "the shadow to be warm")
    one.follow(OWNED, step=4)
    wait_until(lambda: one.shadows.warm() == [], "the promotion")
    before = one.engine.stats()
    for plan in one.plans[4:12]:
        pieces = one.engine.materialize([plan])
        assert pieces.num_rows == len(plan.pieces)
    after = one.engine.stats()
    assert (after["rows_measured"], after["blocks_read"]) == (before["rows_measured"], before["blocks_read"])
    one.follow(OWNED, step=12)
    wait_until(lambda: not kept_keys(one), "what was held to be let go")


def test_shadow_when_the_budget_is_small_then_it_holds_at_least_one_step_and_no_more_than_fits(
    bench: Callable[..., Bench], wait_until: Callable[..., None]
) -> None:
    one = bench(shadow_bytes=1)
    one.follow(STANDBY)
    wait_until(lambda: one.shadows.warm() == [STANDBY], "the shadow to be as warm as it can be")
    assert {key.step for key in kept_keys(one)} == {0}


def test_shadow_when_it_is_dismissed_then_it_holds_nothing(
    bench: Callable[..., Bench], wait_until: Callable[..., None]
) -> None:
    one = bench()
    one.follow(STANDBY)
    wait_until(lambda: bool(one.shadows.warm()), "the shadow to be warm")
    one.follow()
    wait_until(lambda: one.shadows.stats() == {}, "the shadow to let go")


def test_shadow_when_the_planner_is_away_then_it_goes_on_once_it_is_back(
    bench: Callable[..., Bench], wait_until: Callable[..., None]
) -> None:
    one = bench()
    plans, one.planner.plans[1] = one.planner.plans[1], {}
    one.follow(STANDBY)
    wait_until(lambda: one.shadows.warm() == [STANDBY], "nothing planned to be warm enough")
    one.planner.plans[1] = plans
    one.follow(STANDBY, step=0)
    wait_until(lambda: len(kept_keys(one)) == 8, "the planned steps to be held")


def with_budgets(spec: RunSpec, **budgets: int) -> RunSpec:
    """Also budgets that no spec may have."""
    return spec.model_copy(update={"budgets": spec.budgets.model_copy(update=budgets)})


def kept_keys(one: Bench) -> set[Any]:
    """What the shadow of the run holds now."""
    shadow = one.shadows._shadows.get("small")
    return set(shadow._kept) if shadow is not None else set()
