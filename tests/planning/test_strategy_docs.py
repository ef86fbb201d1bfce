"""The strategies that docs/strategies.md shows are run as they stand there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from loadmaster_server.planning.placement import run_strategy
from loadmaster_server.planning.rehearsal import rehearse
from loadmaster_server.planning.strategies import BUILT_IN
from support.graphs import bin_costs, lognormal, make_graph

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
NAMES = ("by_pod", "measured", "zigzag")
Make = Callable[..., Any]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's Python as a module `shown`."""
    module = ModuleType("shown")
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "shown", module)
    return module


def test_page_when_read_then_it_shows_these_and_names_every_built_in_strategy(shown: ModuleType) -> None:
    functions = [name for name, value in vars(shown).items() if callable(value)]
    assert functions == list(NAMES)
    named = re.findall(r"^\| `(\w+)` \| ", PAGE.read_text(), re.MULTILINE)
    assert set(BUILT_IN) == set(named)


@pytest.mark.parametrize("name", NAMES)
def test_shown_strategy_when_run_then_it_is_more_even_than_packing(shown: ModuleType, name: str) -> None:
    graph = make_graph(lognormal(8 * 4 * 8192 * 9 // 10, capacity=8192), mesh={"dp": 8}, num_bins=32, capacity=8192)
    rank_D, packed_D = (
        bin_costs(graph, bin_N).sum(axis=1)
        for bin_N in (run_strategy(getattr(shown, name), graph).bin_N, graph.nodes.packed_N)
    )
    assert rank_D.std() < packed_D.std()


@pytest.mark.parametrize("name", NAMES)
def test_shown_strategy_when_a_run_names_it_then_its_plans_hold_the_same_pieces(
    shown: ModuleType, make_rig: Make, spec_of: Make, pieces_of: Make, name: str
) -> None:
    lengths = [np.random.default_rng(seed).integers(1, 900, 100).tolist() for seed in (0, 1)]
    spec = spec_of(2, strategy=f"shown:{name}")
    rehearse(spec)
    mine, theirs = (make_rig(s, lengths, dp=8).steps(4) for s in (spec, spec_of(2)))
    assert [pieces_of(plan) for plan in mine] == [pieces_of(plan) for plan in theirs]


def test_by_pod_when_run_then_samples_stay_in_their_pod(shown: ModuleType) -> None:
    graph = make_graph(lognormal(8 * 4 * 8192 * 9 // 10, capacity=8192), mesh={"dp": 8}, num_bins=32, capacity=8192)
    assert np.array_equal(run_strategy(shown.by_pod, graph).bin_N // 16, graph.nodes.packed_N // 16)
