"""Bins on ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import SpecError
from loadmaster_server.planning import PackedStep
from loadmaster_server.planning.placement import bin_costs, bins_by_cost, new_bins

Make = Callable[..., Any]


def _packed(cost: list[int], dp: int) -> PackedStep:
    none = np.zeros(0, np.int64)
    return PackedStep(
        step=3, num_bins=len(cost), dp=dp, tokens_N=none, bin_N=none, source_N=none, cost_B=np.array(cost, np.int64)
    )


@given(cost=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=16), dp=st.integers(1, 8))
def test_bins_by_cost_when_placed_then_every_rank_has_as_many_bins(cost: list[int], dp: int) -> None:
    packed = _packed(cost * dp, dp)
    rank_B = bins_by_cost(packed)
    assert np.bincount(rank_B).tolist() == [len(cost)] * dp
    assert sorted(new_bins(packed, bins_by_cost, "").tolist()) == list(range(len(cost) * dp))


def test_bins_by_cost_when_costs_differ_then_the_ranks_even_out() -> None:
    rank_B = bins_by_cost(_packed([9, 1, 8, 2, 7, 3, 6, 4], 2))
    assert rank_B.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]  # 9 + 1 + 6 + 4 = 8 + 2 + 7 + 3


def test_new_bins_when_renumbered_then_a_rank_keeps_the_bins_order() -> None:
    packed = _packed([1, 2, 3, 4], 2)
    assert new_bins(packed, lambda _: np.array([1, 0, 1, 0]), "x").tolist() == [2, 0, 3, 1]


def test_bin_costs_when_summed_then_they_are_linear_and_quadratic() -> None:
    assert bin_costs(np.array([10, 20]), np.array([1, 1]), 3).tolist() == [0, 65_536 * 30 + 500, 0]


def test_strategy_when_named_by_module_and_callable_then_it_places(
    make_rig: Make, spec_of: Make, pieces_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("my_strategies")
    module.alternate = lambda packed: np.arange(packed.num_bins) % packed.dp  # type: ignore[attr-defined]
    module.unfair = lambda packed: np.zeros(packed.num_bins, int)  # type: ignore[attr-defined]
    module.number = 5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_strategies", module)
    lengths = [np.random.default_rng(0).integers(1, 900, 100).tolist()]
    mine = make_rig(spec_of(1, strategy="my_strategies:alternate"), lengths, dp=4).next()
    theirs = make_rig(spec_of(1), lengths, dp=4).next()
    assert pieces_of(mine) == pieces_of(theirs)
    unfair = make_rig(spec_of(1, strategy="my_strategies:unfair"), lengths, dp=4)
    with pytest.raises(SpecError, match="strategy my_strategies:unfair must give each of 4 dp ranks 2 of 8 bins"):
        unfair.next()
    with pytest.raises(SpecError, match="must be callable"):
        make_rig(spec_of(1, strategy="my_strategies:number"), lengths)


@pytest.mark.parametrize("name", ["nonsense", "no.such.module:f", "json:nothing"])
def test_strategy_when_unknown_then_the_known_ones_are_named(make_rig: Make, spec_of: Make, name: str) -> None:
    with pytest.raises(SpecError, match=r"strategy must be one of \['bins_by_cost'\]"):
        make_rig(spec_of(1, strategy=name), [[1]])


def test_plan_when_placed_then_ranks_carry_nearly_equal_cost(make_rig: Make, spec_of: Make) -> None:
    rng = np.random.default_rng(4)
    lengths = (1 + rng.lognormal(6, 1.2, 3000)).astype(int).tolist()
    rig = make_rig(spec_of(1, seq_len=8192, microbatches=32), [lengths], dp=4)
    for plan in rig.steps(5):
        cost_B = bin_costs(rig.tokens_of(plan), plan.pieces.bin, 32)
        rank_D = cost_B.reshape(4, 8).sum(axis=1)
        assert rank_D.max() <= 1.01 * rank_D.mean()
