"""The graph of a step: primitives, states, edges, lineage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.spec import Layout
from loadmaster_flight.wire.errors import BadRequestError, NotFoundError, SpecError
from loadmaster_server.planning import ClientPlaceTree, DGraph
from loadmaster_server.planning.aggregate import COST_UNIT, aggregate
from loadmaster_server.planning.nodes import NodeState
from support.graphs import lognormal, make_graph


def _small(**fields: Any) -> DGraph:
    """Eight pieces in four bins on two ranks."""
    kwargs: dict[str, Any] = {"mesh": {"dp": 2, "tp": 2}, "num_bins": 4, "capacity": 256}
    kwargs |= {"packed": [0, 0, 1, 1, 2, 2, 3, 3], "sources": [0] * 6 + [1] * 2}
    return make_graph([100, 20, 30, 90, 120, 16, 50, 60], **(kwargs | fields))


def _costed(graph: DGraph, axis: str = "dp") -> DGraph:
    return graph.distribute(axis).cost(graph.backbone_cost)


def test_primitives_when_called_then_the_graph_itself_stays() -> None:
    graph = _small()
    _costed(graph).balance().broadcast_at("tp").plan()
    assert (graph.axis, graph.cost_N, graph.place_N, graph.broadcasts) == (None, None, None, ())


@pytest.mark.parametrize(
    "costs",
    [
        lambda n: n.astype(float) ** 1.5,
        lambda n: (n * n).tolist(),
        lambda n: n.astype(np.float32),
        lambda n: n * 1e200,
        lambda n: n * 0,
    ],
)
def test_cost_when_a_function_of_any_scale_then_integers_in_its_order_whose_sum_is_exact(
    costs: Callable[[Any], Any],
) -> None:
    graph = _small().distribute("dp").cost(costs)
    assert graph.cost_N is not None
    assert graph.cost_N.dtype == np.int64
    assert int(graph.cost_N.sum()) < 2**53
    given_N = np.asarray(costs(graph.tokens_N), float)
    assert (np.diff(graph.cost_N[np.argsort(given_N)]) >= 0).all()


@pytest.mark.parametrize(
    ("use", "rule"),
    [
        (
            lambda g: g.cost(lambda n: -n),
            r"cost must be finite and at least 0, got -100 for sample \(source web, epoch",
        ),
        (lambda g: g.cost(lambda n: np.where(n == 50, np.nan, n)), r"got nan for sample \(source code, .* pos 6\)"),
        (lambda g: g.cost(lambda n: n / 0.0), "got inf for sample"),
        (lambda g: g.cost(lambda n: n[1:]), r"one number for each of 8 text nodes, got shape \(7,\)"),
        (lambda g: g.cost(lambda n: ["x"] * len(n)), r"got shape \(8,\), dtype <U1"),
        (lambda g: g.distribute("world"), r"distribute must name one of \['dp'\] for text, got 'world'"),
        (lambda g: g.distribute("dp", 3), "group_size must divide the 2 consumers of dp, got 3"),
        (lambda g: g.distribute("dp").balance(), "balance must come after distribute and cost"),
        (lambda g: g.cost(g.backbone_cost).balance(), "balance must come after distribute and cost"),
        (lambda g: _costed(g).balance("magic"), "balance must have a method of .* got 'magic'"),
        (lambda g: _costed(g).balance(level="world"), "a level of .* 'world'"),
        (lambda g: g.broadcast_at("dp"), "axis that does not split samples, got 'dp'"),
        (lambda g: g.broadcast_at("ep"), "broadcast_at must name an axis of"),
        (lambda g: g.restrict("audio"), "restrict must name one of"),
        (lambda g: g.mix({"web": 0.5, "code": 0.5}), "mix must be what membership used, web = 0.75, got 0.5"),
        (lambda g: g.plan(g), "plan must have one graph a modality"),
        (lambda g: g.plan(g.restrict("image")), "images that are balanced"),
    ],
)
def test_primitive_when_used_wrongly_then_the_rule_and_the_strategy_are_named(
    use: Callable[[DGraph], object], rule: str
) -> None:
    with np.errstate(divide="ignore"), pytest.raises(SpecError, match=rule) as caught:
        use(_small())
    assert "strategy tried" in str(caught.value)
    assert "at step 7" in str(caught.value)


def test_mix_when_it_is_what_membership_used_then_nothing_changes() -> None:
    graph = _small()
    assert graph.mix({"web": 0.75, "code": 0.25}) is graph
    assert graph.schedule == {"web": 0.75, "code": 0.25}


@pytest.mark.parametrize("level", ["rank", "microbatch"])
@pytest.mark.parametrize("layout", [Layout.PACK, Layout.PAD])
def test_balance_when_in_groups_then_no_piece_leaves_its_group(level: str, layout: Layout) -> None:
    dp, per_rank, capacity, group_size = 8, 4, 4096, 2
    num_bins = dp * per_rank
    if layout is Layout.PAD:
        tokens, fields = lognormal(10**7, capacity=capacity)[: num_bins * 3], {"layout": layout, "rows": 3}
    else:
        tokens, fields = lognormal(int(num_bins * capacity * 0.9), capacity=capacity), {}
    graph = make_graph(tokens, mesh={"dp": dp}, num_bins=num_bins, capacity=capacity, **fields)
    text = graph.distribute("dp", group_size).cost(graph.backbone_cost).balance(level=level)
    group = group_size * per_rank
    assert np.array_equal(text.plan().bin_N // group, graph.nodes.packed_N // group)
    assert not np.array_equal(text.plan().bin_N, graph.nodes.packed_N)


@pytest.mark.parametrize(("axis", "num"), [("dp", 2), ("cp", 4), ("world", 8)])
def test_images_when_distributed_over_an_axis_then_its_consumers_share_them(axis: str, num: int) -> None:
    images = [(i % 8, 100 + i) for i in range(64)]
    graph = _small(mesh={"dp": 2, "cp": 2, "tp": 2}, images=images).restrict("image")
    placed = graph.distribute(axis).cost(graph.encoder_cost).balance(level="rank")
    assert placed.place_N is not None
    assert np.bincount(placed.place_N, minlength=num).tolist() == [64 // num] * num
    grouped = graph.distribute(axis, 1).cost(graph.encoder_cost).balance(level="rank")
    assert grouped.place_N is not None
    assert grouped.place_N.tolist() == sorted(grouped.place_N.tolist())


def test_images_when_a_rank_is_slow_then_it_encodes_fewer() -> None:
    tree = ClientPlaceTree.of({"dp": 2, "tp": 2}, speed_of_leaf={1: 0.25})
    images = _small(mesh=tree, images=[(i % 8, 256) for i in range(130)]).restrict("image")
    placed = images.distribute("world").cost(images.encoder_cost).balance(level="rank")
    assert placed.place_N is not None
    assert np.bincount(placed.place_N).tolist() == [40, 10, 40, 40]


def test_edges_when_aggregated_then_they_conserve_pieces_tokens_and_cost() -> None:
    graph = _costed(_small()).balance()
    assert graph.cost_N is not None
    for start, end in (("source", "packed"), ("packed", "bin"), ("bin", "rank"), ("source", "rank")):
        edges = graph.edges(start, end)
        assert edges.pieces_E.sum() == 8
        assert edges.tokens_E.sum() == graph.nodes.tokens_N.sum()
        assert edges.cost_E.sum() == graph.cost_N.sum()
        assert len(set(zip(edges.from_E.tolist(), edges.to_E.tolist(), strict=True))) == len(edges.from_E)
    to_rank = _small().edges("source", "rank")
    assert list(zip(to_rank.from_E, to_rank.to_E, to_rank.pieces_E, strict=True)) == [(0, 0, 4), (0, 1, 2), (1, 1, 2)]


def test_lineage_when_placed_then_it_names_the_way_to_the_leaves() -> None:
    graph = _small()
    before = graph.lineage(6)
    assert (before.source, before.sample, before.packed_bin) == ("code", (1, 0, 0, 0, 6), 3)
    assert (before.rank, before.leaves, before.state) == (None, None, "measured")
    after = graph.placed(np.array([0, 0, 1, 1, 2, 2, 3, 2])).lineage(7)
    assert (after.packed_bin, after.rank, after.microbatch, after.leaves) == (3, 1, 0, (2, 3))
    assert after.state == "planned"


def test_explain_when_a_sample_is_in_the_step_then_every_piece_is_told() -> None:
    graph = _small()
    assert graph.explain((0, 0, 0, 0, 0)) == (
        "sample (source web, epoch 0, shard 0, block 0, pos 0): 100 tokens, packed into bin 0, measured"
    )
    placed = _costed(graph).placed(graph.nodes.packed_N)
    text = placed.explain((1, 0, 0, 0, 7))
    assert "packed into bin 3; planned by tried (packed) on dp rank 1 (ranks 2, 3), microbatch 1, " in text
    assert "of its cost, which is" in text
    with pytest.raises(NotFoundError, match=r"\(1, 0, 0, 0, 99\) .* is not in step 7"):
        graph.explain((1, 0, 0, 0, 99))
    with pytest.raises(BadRequestError, match="a sample must be"):
        graph.explain((1, 0))


def _with_images(**fields: Any) -> DGraph:
    """Pieces 1, 6 and 7 have images; bins stay as packed."""
    graph = _costed(_small(images=[(1, 100), (6, 64), (6, 400), (7, 256)]))
    return replace(graph.placed(graph.nodes.packed_N), **fields)


def test_lineage_when_images_are_distributed_then_it_names_the_rank_that_encodes_each() -> None:
    graph = _with_images(encoder_K=np.array([3, 1, 0, 2]))
    way = graph.lineage(6)
    assert (way.patches, way.encoders, way.leaves) == ((64, 400), (1, 0), (2, 3))
    assert "; images: 64 patches on rank 1, 400 patches on rank 0, " in graph.explain((1, 0, 0, 0, 6))
    assert (graph.lineage(0).patches, graph.lineage(0).encoders) == ((), ())
    assert "images" not in graph.explain((0, 0, 0, 0, 0))
    assert _small(images=[(6, 64)]).lineage(6).encoders is None


def test_lineage_when_images_go_with_their_documents_then_the_first_rank_of_these_encodes_them() -> None:
    assert [_with_images().lineage(i).encoders for i in (1, 6)] == [(0,), (2, 2)]


def test_edges_when_they_end_at_encoders_then_they_are_those_of_the_images() -> None:
    graph = _with_images(encoder_K=np.array([3, 1, 0, 1]))
    edges = graph.edges("source", "encoder")
    rows = zip(edges.from_E, edges.to_E, edges.pieces_E, edges.tokens_E, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [(0, 3, 1, 100), (1, 0, 1, 400), (1, 1, 2, 320)]
    costs_K = graph.encoder_cost(graph.images.patches_K)
    assert edges.cost_E / edges.cost_E.sum() == pytest.approx(
        np.array([costs_K[0], costs_K[2], costs_K[1] + costs_K[3]]) / costs_K.sum()
    )
    assert graph.edges("rank", "encoder").pieces_E.sum() == 4


def test_aggregate_when_a_step_has_images_then_their_ranks_patches_and_cost_are_told() -> None:
    graph, lane_N = _with_images(encoder_K=np.array([3, 1, 0, 1])), np.zeros(8, np.int64)
    images = aggregate(graph, lane_N, [1, 1])["images"]
    assert isinstance(images, dict)
    assert (images["is_hybrid"], images["rank_images"]) == (True, [1, 2, 0, 1])
    assert images["rank_patches"] == [400, 320, 0, 100]
    assert sum(images["rank_cost"]) == pytest.approx(COST_UNIT, abs=4)
    inline = aggregate(_with_images(), lane_N, [1, 1])["images"]
    assert isinstance(inline, dict)
    assert (inline["is_hybrid"], inline["rank_images"]) == (False, [1, 0, 3, 0])
    assert "images" not in aggregate(_costed(_small()), lane_N, [1, 1])


def test_restrict_when_the_text_is_balanced_then_images_know_its_microbatches() -> None:
    text = _costed(_small(images=[(i % 8, 100) for i in range(32)])).balance()
    images = text.restrict("image")
    assert np.array_equal(images.bin_N, text.bin_N)
    placed = images.distribute("world").cost(images.encoder_cost).balance()
    index_K = (text.bin_N % 2)[images.images.node_K]
    assert placed.place_N is not None
    assert np.bincount(index_K * 4 + placed.place_N, minlength=8).tolist() == [4] * 8
    assert np.array_equal(text.plan(placed).bin_N, text.bin_N)


def test_explain_when_a_sample_is_cut_then_each_piece_says_where_it_begins() -> None:
    graph = _small()
    graph.nodes.key_N6[1] = [0, 0, 0, 0, 0, 112]
    first, second = graph.explain((0, 0, 0, 0, 0)).splitlines()
    assert "from token" not in first
    assert "from token 112" in second


@pytest.mark.parametrize(
    ("way", "is_possible"),
    [
        ([NodeState.PLANNED, NodeState.CONSTRUCTED, NodeState.DELIVERED], True),
        ([NodeState.PLANNED, NodeState.CONSTRUCTED, NodeState.BAD], True),
        ([NodeState.SKIPPED], True),
        ([NodeState.DELIVERED], False),
        ([NodeState.SKIPPED, NodeState.PLANNED], False),
        ([NodeState.PLANNED, NodeState.DELIVERED, NodeState.BAD], False),
        ([NodeState.PLANNED, NodeState.MEASURED], False),
    ],
)
def test_states_when_they_follow_then_only_in_the_order_of_a_samples_life(
    way: list[NodeState], is_possible: bool
) -> None:
    graph, at = _small(), np.array([2, 3])

    def go() -> DGraph:
        here = graph
        for state in way:
            here = here.advance(state, at)
        return here

    if is_possible:
        assert go().nodes.state_N.tolist() == [0, 0, way[-1], way[-1], 0, 0, 0, 0]
    else:
        with pytest.raises(BadRequestError, match="cannot become"):
            go()
