"""Cost models: formulas, fits and integers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_server.planning.cost import (
    DEFAULT_COST,
    CostModel,
    integer_costs,
    memory_cost,
    refit,
    to_integers,
    transformer_cost,
    vit_cost,
)


def llm_12b() -> CostModel:
    return transformer_cost(5120, 36, 13_824, 128_256)


def test_transformer_cost_when_of_a_12b_model_then_parameters_and_crossover_are_the_published_ones() -> None:
    assert llm_12b().linear / 6 == pytest.approx(12.08e9, rel=1e-3)
    assert llm_12b().crossover == pytest.approx(65_514, abs=1)


def test_default_cost_then_has_the_shape_of_the_12b_model() -> None:
    assert DEFAULT_COST.crossover == pytest.approx(llm_12b().crossover, abs=1)


def test_vit_cost_when_of_a_2b_model_then_crossover_is_at_12288_patches() -> None:
    assert vit_cost(2048, 40).crossover == pytest.approx(12_288)


def test_transformer_cost_when_not_causal_then_attention_costs_twice() -> None:
    causal, full = transformer_cost(64, 2, 128, 1000), transformer_cost(64, 2, 128, 1000, causal=False)
    assert full.quadratic == 2 * causal.quadratic
    assert full.linear == causal.linear


def test_transformer_cost_when_queries_are_grouped_then_only_keys_and_values_shrink() -> None:
    whole, grouped = transformer_cost(64, 3, 128, 0), transformer_cost(64, 3, 128, 0, kv_hidden=16)
    assert whole.linear - grouped.linear == 6 * 3 * 2 * 64 * (64 - 16)


def test_memory_cost_when_scores_are_not_kept_then_linear() -> None:
    assert memory_cost(64, 2).quadratic == 0
    assert memory_cost(64, 2, heads=4, flash=False).quadratic == 5 * 4 * 2


@pytest.mark.parametrize("name", ["hidden", "layers", "ffn"])
def test_transformer_cost_when_a_size_is_zero_then_names_it(name: str) -> None:
    sizes = {"hidden": 8, "layers": 1, "ffn": 8, "vocab": 8} | {name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        transformer_cost(**sizes)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_cost_model_when_a_coefficient_is_no_cost_then_names_it(value: float) -> None:
    with pytest.raises(ValueError, match="quadratic must be finite and at least 0"):
        CostModel(linear=1.0, quadratic=value)


def test_cost_model_when_nothing_costs_then_refused() -> None:
    with pytest.raises(ValueError, match="must not all be 0"):
        CostModel(linear=0.0, quadratic=0.0)


def test_refit_when_times_follow_a_model_then_finds_it() -> None:
    rng, model = np.random.default_rng(3), CostModel(linear=2e-6, quadratic=4e-11, constant=1e-4)
    batches = [rng.integers(1, 8000, rng.integers(2, 30)) for _ in range(40)]
    found = refit(batches, [model(batch).sum() for batch in batches])
    assert found.linear == pytest.approx(model.linear, rel=1e-6)
    assert found.quadratic == pytest.approx(model.quadratic, rel=1e-6)
    assert found.constant == pytest.approx(model.constant, rel=1e-6)


def test_refit_when_best_constant_is_negative_then_leaves_it_out() -> None:
    batches = [np.full(k, 100 * k) for k in range(2, 12)]
    found = refit(batches, [1e-6 * batch.sum() - 1e-5 * len(batch) for batch in batches])
    assert found.constant == 0.0
    assert found.linear > 0


def test_refit_when_too_few_times_then_says_so() -> None:
    with pytest.raises(ValueError, match="at least 3 microbatches"):
        refit([[1], [2]], [1.0, 2.0])


@given(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=200))
def test_integer_costs_then_sum_is_exact_in_a_double_and_order_is_kept(tokens: list[int]) -> None:
    cost_N = integer_costs(llm_12b(), tokens)
    assert sum(cost_N.tolist()) < 2**53
    order = np.argsort(tokens, kind="stable")
    assert (np.diff(cost_N[order]) >= 0).all()
    assert cost_N.tolist() == integer_costs(llm_12b(), tokens).tolist()


@given(st.permutations(list(range(1, 40))))
def test_integer_costs_when_order_changes_then_each_keeps_its_cost(tokens: list[int]) -> None:
    by_tokens = dict(zip(tokens, integer_costs(DEFAULT_COST, tokens).tolist(), strict=True))
    assert by_tokens == dict(zip(range(1, 40), integer_costs(DEFAULT_COST, range(1, 40)).tolist(), strict=True))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_to_integers_when_a_cost_is_none_then_names_rule_and_document(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"cost must be finite and at least 0, got .* for document 1"):
        to_integers([1.0, wrong])


def test_to_integers_when_empty_then_empty() -> None:
    assert to_integers([]).tolist() == []
