from __future__ import annotations

from collections.abc import Callable

import pytest

from loadmaster_flight.spec import RunSpec
from loadmaster_server.schedules.preview import Plan, Stock, forecast

MakeSpec = Callable[..., RunSpec]

STEP_TOKENS = 256  # G 4 times C 64


def _plan(spec: RunSpec) -> Plan:
    return Plan(stretches=((0, spec),))


def _stocks(**of: Stock) -> list[Stock]:
    return [of.get(name, Stock(name=name)) for name in ("web", "code", "math")]


def test_forecast_when_shares_are_constant_then_tokens_by_share(make_spec: MakeSpec) -> None:
    web = Stock(name="web", epoch_tokens=1920.0, placed_tokens=0.0)
    found = forecast(_plan(make_spec()), _stocks(web=web), 0, 100)
    assert [f.tokens for f in found] == pytest.approx([19_200, 6_400, 0])
    assert [f.epochs for f in found] == [pytest.approx(10), None, None]
    assert all(f.dry_step is None for f in found)


def test_forecast_when_a_curve_bends_then_the_sum_over_its_steps(make_spec: MakeSpec) -> None:
    knots = [
        {"at": 10, "value": 0, "shape": "cosine"},
        {"at": 31, "value": 4, "shape": "linear"},
        {"at": 50, "value": 1},
    ]
    spec = make_spec(weights={"web": knots, "code": 2})
    share = [spec.mixture.weights["web"].at(step) / (spec.mixture.weights["web"].at(step) + 2) for step in range(80)]
    found = forecast(_plan(spec), _stocks(), 0, 80)
    assert found[0].tokens == pytest.approx(sum(share) * STEP_TOKENS)
    assert sum(f.tokens for f in found) == pytest.approx(80 * STEP_TOKENS)


def test_forecast_when_the_way_is_long_then_close_to_the_sum_over_its_steps(make_spec: MakeSpec) -> None:
    last = 50_000
    spec = make_spec(weights={"web": [{"at": 0, "value": 1, "shape": "cosine"}, {"at": 40_000, "value": 9}], "code": 2})
    ramp = spec.mixture.weights["web"]
    exact = sum(ramp.at(step) / (ramp.at(step) + 2) for step in range(last)) * STEP_TOKENS
    assert forecast(_plan(spec), _stocks(), 0, last)[0].tokens == pytest.approx(exact, rel=1e-5)


def test_forecast_when_g_and_c_ramp_then_steps_grow(make_spec: MakeSpec) -> None:
    batch = {
        "seq_len": [{"at": 0, "value": 64}, {"at": 10, "value": 128}],
        "microbatches": [{"at": 0, "value": 4}, {"at": 20, "value": 8}],
    }
    found = forecast(_plan(make_spec(batch=batch)), _stocks(), 0, 30)
    assert sum(f.tokens for f in found) == pytest.approx(10 * 256 + 10 * 512 + 10 * 1024)


def test_forecast_when_a_source_runs_dry_then_the_others_take_its_share(make_spec: MakeSpec) -> None:
    code = Stock(name="code", epoch_tokens=640.0, max_epochs=2)
    found = forecast(_plan(make_spec()), _stocks(code=code), 0, 100)
    assert (found[1].dry_step, found[1].tokens) == (20, pytest.approx(1280))
    assert found[0].tokens == pytest.approx(100 * STEP_TOKENS - 1280)


def test_forecast_when_a_source_is_dry_already_then_from_the_first_step(make_spec: MakeSpec) -> None:
    code = Stock(name="code", epoch_tokens=640.0, max_epochs=1, placed_tokens=640.0)
    found = forecast(_plan(make_spec()), _stocks(code=code), 50, 60)
    assert (found[1].dry_step, found[1].tokens) == (50, 640)
    assert found[0].tokens == pytest.approx(2560)


def test_forecast_when_a_source_repeats_beyond_the_bound_then_its_step(make_spec: MakeSpec) -> None:
    code = Stock(name="code", epoch_tokens=640.0, placed_tokens=320.0)
    found = forecast(_plan(make_spec()), _stocks(code=code), 0, 100, max_repeats=3)
    assert (found[1].repeats_step, found[0].repeats_step) == (25, None)
    assert forecast(_plan(make_spec()), _stocks(code=code), 0, 20, max_repeats=3)[1].repeats_step is None


def test_forecast_when_revisions_follow_each_other_then_each_rules_its_steps(make_spec: MakeSpec) -> None:
    plan = Plan(stretches=((0, make_spec()), (40, make_spec(weights={"math": 1}))))
    found = forecast(plan, _stocks(), 30, 50)
    assert [f.tokens for f in found] == pytest.approx([1920, 640, 2560])


def test_forecast_when_shares_count_samples_then_by_their_length(make_spec: MakeSpec) -> None:
    spec = make_spec(mixture={"unit": "samples", "weights": {"web": 1, "code": 1}})
    stocks = _stocks(web=Stock(name="web", mean_tokens=300.0), code=Stock(name="code", mean_tokens=100.0))
    found = forecast(_plan(spec), stocks, 0, 10)
    assert [f.tokens for f in found] == pytest.approx([1920, 640, 0])


def test_forecast_when_steps_are_not_full_then_less(make_spec: MakeSpec) -> None:
    assert forecast(_plan(make_spec()), _stocks(), 0, 10, fill=0.5)[0].tokens == pytest.approx(960)
