"""The strategies that come with Loadmaster, on invented steps."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_flight.spec import Layout
from loadmaster_server.planning import ClientPlaceTree, DGraph
from loadmaster_server.planning.placement import run_strategy
from loadmaster_server.planning.primitives import Placement
from loadmaster_server.planning.strategies import (
    BUILT_IN,
    bins_by_cost,
    llm_balance,
    long_short_context,
    sequential,
    vlm_hybrid,
)
from support.graphs import bin_costs, lognormal, make_graph

C, M = 8192, 4
MESHES = ({"dp": 1}, {"dp": 4}, {"pp": 2, "dp": 2, "tp": 2}, {"dp": 8, "cp": 2})


def _step(dp: int, *, fill: float = 0.95, seed: int = 0, **fields: object) -> DGraph:
    tokens = lognormal(int(dp * M * C * fill), capacity=C, seed=seed)
    return make_graph(tokens, num_bins=dp * M, capacity=C, **({"mesh": {"dp": dp}} | fields))


def _rank_excess(graph: DGraph, bin_N: np.ndarray) -> float:
    rank_D = bin_costs(graph, bin_N).sum(axis=1)
    return float(rank_D.max() / rank_D.mean())


@pytest.mark.parametrize("name", BUILT_IN)
def test_strategy_when_read_then_at_most_15_lines_on_the_primitives(name: str) -> None:
    source = inspect.getsource(BUILT_IN[name])
    assert len(source.splitlines()) <= 15
    assert ".plan(" in source


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(BUILT_IN)),
    mesh=st.sampled_from(MESHES),
    layout=st.sampled_from(list(Layout)),
    seed=st.integers(0, 1000),
)
def test_strategy_when_run_on_any_mesh_and_layout_then_the_placement_is_sound(
    name: str, mesh: dict[str, int], layout: Layout, seed: int
) -> None:
    num_bins = mesh["dp"] * M
    rng = np.random.default_rng(seed)
    rows, num = (3, num_bins * 3) if layout is Layout.PAD else (1, num_bins * 4)
    tokens = rng.integers(1, C // 4, num).tolist()
    packed = (rng.permutation(num) % num_bins).tolist()
    graph = make_graph(
        tokens, mesh=mesh, num_bins=num_bins, capacity=C, packed=packed, layout=layout, rows=rows,
        images=[(i, int(rng.integers(1, 4096))) for i in range(0, num, 3)],
    )  # fmt: skip
    first, second = (run_strategy(BUILT_IN[name], graph) for _ in range(2))
    assert first.bin_N.tobytes() == second.bin_N.tobytes()
    assert sorted(first.node_N.tolist()) == list(range(num))
    assert first.broadcasts == ("tp",)
    used_B = np.bincount(first.bin_N, minlength=num_bins)
    if layout is Layout.PAD:
        assert used_B.tolist() == [rows] * num_bins
    assert used_B.min() > 0


def test_sequential_when_run_then_the_packed_bins_stay() -> None:
    graph = _step(4)
    assert np.array_equal(run_strategy(sequential, graph).bin_N, graph.nodes.packed_N)


def test_bins_by_cost_when_run_then_packed_bins_move_whole_and_ranks_even_out() -> None:
    graph = _step(4)
    bin_N = run_strategy(bins_by_cost, graph).bin_N
    pairs = set(zip(graph.nodes.packed_N.tolist(), bin_N.tolist(), strict=True))
    assert len(pairs) == graph.num_bins
    assert _rank_excess(graph, bin_N) < _rank_excess(graph, graph.nodes.packed_N)


@pytest.mark.parametrize("fill", [0.9, 0.99])
def test_llm_balance_when_bins_are_full_then_ranks_are_within_a_percent(fill: float) -> None:
    graph = _step(16, fill=fill)
    assert _rank_excess(graph, run_strategy(llm_balance, graph).bin_N) <= 1.01
    assert _rank_excess(graph, graph.nodes.packed_N) > 1.02


def test_llm_balance_when_in_a_pipeline_then_large_microbatches_are_in_the_middle() -> None:
    graph = _step(4, mesh={"pp": 4, "dp": 4})
    costs_DM = bin_costs(graph, run_strategy(llm_balance, graph).bin_N)
    assert (costs_DM[:, [0, -1]].max(axis=1) <= costs_DM[:, 1:-1].min(axis=1)).all()


def test_llm_balance_when_a_leaf_is_slow_then_its_rank_gets_proportionally_less() -> None:
    tree = ClientPlaceTree.of({"dp": 4}, speed_of_leaf={2: 0.5})
    graph = _step(4, fill=0.6, mesh=tree)
    rank_D = bin_costs(graph, run_strategy(llm_balance, graph).bin_N).sum(axis=1)
    expected_D = rank_D.sum() * np.array([1, 1, 0.5, 1]) / 3.5
    assert rank_D == pytest.approx(expected_D, rel=0.05)


def test_vlm_hybrid_when_run_then_images_and_documents_are_even_each_by_their_own_cost() -> None:
    rng = np.random.default_rng(1)
    mesh = {"dp": 4, "cp": 2, "tp": 2}
    tokens = lognormal(int(4 * M * C * 0.95), capacity=C)
    patches = rng.lognormal(6, 1, len(tokens) * 2).astype(int).clip(16, 4096)
    images = [(i // 2, int(n)) for i, n in enumerate(patches)]
    graph = make_graph(tokens, mesh=mesh, num_bins=4 * M, capacity=C, images=images)
    placement = run_strategy(vlm_hybrid, graph)
    assert _rank_excess(graph, placement.bin_N) <= 1.02
    assert placement.image_axis == "world"
    load_MW, largest_M = _encoder_loads(graph, placement)
    assert (load_MW.max(axis=1) <= 1.02 * np.maximum(load_MW.mean(axis=1), largest_M)).all()


def test_vlm_hybrid_when_there_are_many_images_then_ranks_are_even_over_the_step_and_in_every_microbatch() -> None:
    rng = np.random.default_rng(2)
    tokens = lognormal(int(4 * 8 * C * 0.95), capacity=C)
    images = [(int(i), int(n)) for i in range(len(tokens)) for n in rng.integers(64, 2048, 8)]
    graph = make_graph(tokens, mesh={"dp": 4, "tp": 2}, num_bins=32, capacity=C, images=images)
    load_MW, _ = _encoder_loads(graph, run_strategy(vlm_hybrid, graph))
    assert (load_MW.max(axis=1) <= 1.06 * load_MW.mean(axis=1)).all()
    assert load_MW.sum(axis=0).max() <= 1.02 * load_MW.sum(axis=0).mean()


def _encoder_loads(graph: DGraph, placement: Placement) -> tuple[np.ndarray, np.ndarray]:
    """Cost of each index of microbatches on each rank, (M, W), and the largest image of each index, (M,)."""
    assert placement.consumer_K is not None
    cost_K = graph.encoder_cost(graph.images.patches_K)
    index_K = placement.bin_N[graph.images.node_K] % graph.bins_per_rank
    load_MW = np.zeros((graph.bins_per_rank, graph.tree.world_size))
    np.add.at(load_MW, (index_K, placement.consumer_K), cost_K)
    largest_M = np.zeros(graph.bins_per_rank)
    np.maximum.at(largest_M, index_K, cost_K)
    return load_MW, largest_M


def test_vlm_hybrid_when_there_are_no_images_then_the_text_is_balanced_alone() -> None:
    graph = _step(4)
    placement = run_strategy(vlm_hybrid, graph)
    assert np.array_equal(placement.bin_N, run_strategy(llm_balance, graph).bin_N)
    assert placement.consumer_K is not None
    assert len(placement.consumer_K) == 0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), pp=st.sampled_from([1, 4]))
def test_long_short_context_when_run_then_no_order_of_microbatches_waits_less_per_index(seed: int, pp: int) -> None:
    graph = _step(4, seed=seed, mesh={"pp": pp, "dp": 4})
    costs_DM = bin_costs(graph, run_strategy(long_short_context, graph).bin_N)
    plain_DM = bin_costs(graph, run_strategy(llm_balance, graph).bin_N)
    assert np.sort(costs_DM, axis=1) == pytest.approx(np.sort(plain_DM, axis=1))
    waited = costs_DM.max(axis=0).sum()
    rng = np.random.default_rng(seed)
    for _ in range(20):
        assert waited <= rng.permuted(costs_DM, axis=1).max(axis=0).sum() * (1 + 1e-12)
    assert waited <= plain_DM.max(axis=0).sum() * (1 + 1e-12)
