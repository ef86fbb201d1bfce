"""Strategies by name, and the check that every placement passes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.spec import MeshSpec, ModelSpec, RunSpec
from loadmaster_flight.spec.media import MediaSpec, VisionSpec
from loadmaster_flight.spec.mesh import TpMode
from loadmaster_flight.wire.errors import MeshError, SpecError
from loadmaster_server.planning import DGraph, Placement
from loadmaster_server.planning.cost import CostModel, transformer_cost
from loadmaster_server.planning.place_tree import ClientPlaceTree
from loadmaster_server.planning.placement import costs_of, run_strategy
from loadmaster_server.planning.planner import StreamPlanner
from loadmaster_server.planning.rehearsal import rehearse
from loadmaster_server.planning.strategies import load_strategy, sequential, vlm_hybrid
from support.graphs import make_graph

Make = Callable[..., Any]
LENGTHS = [np.random.default_rng(0).integers(1, 900, 100).tolist()]


def _graph() -> DGraph:
    return make_graph([100, 20, 30, 90], mesh={"dp": 2}, num_bins=2, capacity=144, packed=[0, 0, 1, 1])


def _nothing(graph: DGraph) -> Any:
    return None


def _crashing(graph: DGraph) -> Any:
    return 1 // 0


def _edited(**fields: Any) -> Callable[[DGraph], Placement]:
    return lambda graph: replace(sequential(graph), **fields)


@pytest.fixture
def own_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module `my_strategies` that can be imported."""
    module = ModuleType("my_strategies")
    monkeypatch.setitem(sys.modules, "my_strategies", module)
    return module


@pytest.mark.parametrize(
    ("strategy", "rule"),
    [
        (
            _edited(node_N=np.array([0, 1, 2]), bin_N=np.zeros(3, int)),
            r"exactly once, it loses sample .* pos 3\), 1 in",
        ),
        (
            _edited(node_N=np.array([0, 1, 1, 2, 3]), bin_N=np.zeros(5, int)),
            r"exactly once, it repeats sample .* pos 1",
        ),
        (_edited(node_N=np.array([0, 1, 2, 4])), r"must place pieces in \[0, 4\), got 0..4"),
        (_edited(bin_N=np.array([0, 0, 1])), r"got shapes \(4,\) and \(3,\)"),
        (_edited(bin_N=np.array([0.0, 0, 1, 1])), "dtypes int64 and float64"),
        (_edited(bin_N=np.array([0, 0, 2, 1])), r"bins must be in \[0, 2\), got 2 for sample .* pos 2"),
        (_edited(bin_N=np.array([-1, 0, 1, 1])), r"bins must be in \[0, 2\), got -1 for sample .* pos 0"),
        (_edited(bin_N=np.array([0, 1, 1, 0])), "a bin must hold at most 9 units of 16 tokens, got 13 in bin 0 with"),
        (lambda g: np.array([0, 0]), r"got shapes \(4,\) and \(2,\)"),
        (lambda g: g, r"must return graph.plan\(\) or the bin of each piece, got DGraph"),
        (_nothing, "got NoneType"),
        (_crashing, "raised ZeroDivisionError: integer division or modulo by zero, at step 7"),
        (lambda g: g.cost(lambda n: -n).plan(), "cost must be finite and at least 0"),
        (_edited(consumer_K=np.array([0])), "one consumer for each of 0 images"),
    ],
)
def test_strategy_when_it_breaks_a_rule_then_rule_strategy_and_sample_are_named(strategy: Any, rule: str) -> None:
    with pytest.raises(SpecError, match=rule) as caught:
        run_strategy(strategy, _graph())
    assert str(caught.value).startswith("strategy tried: ")


def test_strategy_when_it_leaves_a_bin_empty_then_refused_unless_membership_did() -> None:
    tokens = [16, 16, 16, 16]
    graph = make_graph(tokens, mesh={"dp": 2}, num_bins=4, capacity=64, packed=[0, 1, 2, 3])
    with pytest.raises(SpecError, match="no bin may be empty where membership fills all 4, got bin 1 empty"):
        run_strategy(lambda g: np.array([0, 0, 2, 3]), graph)
    short = make_graph(tokens[:3], mesh={"dp": 2}, num_bins=4, capacity=64, packed=[0, 0, 2])
    assert run_strategy(sequential, short).bin_N.tolist() == [0, 0, 2]


def test_strategy_when_images_go_nowhere_then_refused() -> None:
    graph = make_graph([16, 16], mesh={"dp": 2}, num_bins=2, capacity=64, packed=[0, 1], images=[(0, 4), (1, 4)])
    with pytest.raises(SpecError, match=r"consumers in \[0, 2\), got 5 for one of sample .* pos 1"):
        run_strategy(_edited(consumer_K=np.array([0, 5]), image_axis="world"), graph)


def test_strategy_when_it_returns_pieces_in_another_order_then_bins_follow_the_pieces() -> None:
    placement = run_strategy(_edited(node_N=np.array([3, 2, 1, 0]), bin_N=np.array([1, 1, 0, 0])), _graph())
    assert placement.bin_N.tolist() == [0, 0, 1, 1]
    assert run_strategy(lambda g: [1, 1, 0, 0], _graph()).bin_N.tolist() == [1, 1, 0, 0]


def test_load_strategy_when_dotted_then_found(own_module: ModuleType) -> None:
    own_module.mine = sequential  # type: ignore[attr-defined]
    assert load_strategy("my_strategies:mine") is sequential
    assert load_strategy("sequential") is sequential


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("best", "names neither"),
        (":best", "names neither"),
        ("no.such.module:f", "ModuleNotFoundError"),
        ("json:nothing", "AttributeError"),
        ("my_strategies:number", "is not callable but a int"),
        ("my_strategies:two", "must take one argument, the graph"),
    ],
)
def test_load_strategy_when_it_cannot_be_one_then_the_known_ones_and_the_reason_are_named(
    own_module: ModuleType, name: str, why: str
) -> None:
    own_module.number, own_module.two = 5, lambda a, b: a  # type: ignore[attr-defined]
    with pytest.raises(SpecError, match=rf"^strategy: must be one of llm_balance, .* got '{name}' \({why}") as caught:
        load_strategy(name)
    assert caught.value.details["field"] == "strategy"


def test_plan_when_the_strategy_is_a_users_then_it_places_the_same_membership(
    make_rig: Make, spec_of: Make, pieces_of: Make, own_module: ModuleType
) -> None:
    def spread(graph: DGraph) -> Any:
        return (graph.nodes.packed_N * 3 + 1) % graph.num_bins

    own_module.spread = spread  # type: ignore[attr-defined]
    mine = make_rig(spec_of(1, strategy="my_strategies:spread"), LENGTHS, dp=4).next()
    theirs = make_rig(spec_of(1, strategy="sequential"), LENGTHS, dp=4).next()
    assert pieces_of(mine) == pieces_of(theirs)
    assert np.array_equal(mine.pieces.bin, (theirs.pieces.bin * 3 + 1) % 8)


def test_plan_when_the_strategy_breaks_a_rule_then_nothing_is_planned(
    make_rig: Make, spec_of: Make, own_module: ModuleType
) -> None:
    own_module.heap = lambda graph: np.zeros(len(graph.nodes), int)  # type: ignore[attr-defined]
    rig = make_rig(spec_of(1, strategy="my_strategies:heap"), LENGTHS, dp=4)
    before = rig.planner.state
    with pytest.raises(SpecError, match=r"strategy my_strategies:heap: a bin must hold at most 64 units .* at step 0"):
        rig.next()
    assert rig.planner.state() == before()
    assert rig.planner.step == 0


def test_rehearse_when_a_users_strategy_is_sound_then_silent_else_told(spec_of: Make, own_module: ModuleType) -> None:
    own_module.good = sequential  # type: ignore[attr-defined]
    own_module.lossy = lambda graph: graph.nodes.packed_N[1:]  # type: ignore[attr-defined]
    for layout in ("pack", "concat", "pad"):
        rehearse(spec_of(2, layout=layout, strategy="my_strategies:good"))
        with pytest.raises(SpecError, match="strategy my_strategies:lossy: must give one whole-numbered bin"):
            rehearse(spec_of(2, layout=layout, strategy="my_strategies:lossy"))
    rehearse(spec_of(1, seq_len=16, microbatches=1, strategy="my_strategies:good"))


def test_rehearse_when_ranks_that_do_not_read_would_encode_then_refused(spec_of: Make, own_module: ModuleType) -> None:
    own_module.hybrid = vlm_hybrid  # type: ignore[attr-defined]
    media = MediaSpec(vision=VisionSpec(image_token=7, video_token=8))
    broadcast = {"mesh": MeshSpec(tp=2, tp_mode=TpMode.BROADCAST)}
    for strategy in ("vlm_hybrid", "my_strategies:hybrid"):
        text = spec_of(2, strategy=strategy)
        spec = text.model_copy(update=broadcast | {"media": media})
        with pytest.raises(SpecError, match="tp_mode must be read where every rank encodes images") as caught:
            rehearse(spec)
        assert caught.value.details["field"] == "mesh.tp_mode"
        rehearse(spec, tree=ClientPlaceTree.of({"dp": 2, "tp": 1}))
        rehearse(spec.model_copy(update={"mesh": MeshSpec(tp=2)}))
        rehearse(text.model_copy(update=broadcast))
    rehearse(spec_of(2, strategy="llm_balance").model_copy(update=broadcast | {"media": media}))


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        (3, r"dp must divide the microbatches of a step, got 8 % 3"),
        ({"dp": 2, "cp": 3}, "2 \\* cp must divide align, got cp 3 and align 16"),
        ({"dp": 2, "cp": 2, "tp": 3}, "2 \\* cp \\* tp must divide seq_len, got cp 2, tp 3 and 1024 tokens"),
        ({"dp": 2, "ep": 2}, "mesh must have axes of"),
        ({"dp": 0}, "mesh.dp must be at least 1"),
    ],
)
def test_planner_when_the_mesh_does_not_fit_then_the_rule_is_named(
    make_rig: Make, spec_of: Make, mesh: Any, says: str
) -> None:
    with pytest.raises(MeshError, match=says):
        make_rig(spec_of(1), LENGTHS, dp=mesh)


def test_costs_when_the_model_is_stated_then_its_sizes_count(spec_of: Make) -> None:
    sizes = {"hidden": 1024, "layers": 4, "ffn": 4096, "vocab": 32_000}
    stated = ModelSpec.model_validate({"backbone": sizes | {"kv_hidden": 256}, "encoder": {"hidden": 64, "layers": 2}})
    backbone, encoder = costs_of(stated)
    assert backbone == transformer_cost(**sizes, kv_hidden=256)
    assert encoder.crossover == pytest.approx(6 * 64)
    assert costs_of(ModelSpec())[0] == CostModel(linear=65_514.0, quadratic=1.0)
    assert costs_of(ModelSpec())[1].crossover == 12_288


def test_model_when_a_size_is_impossible_then_the_field_is_named(spec_of: Make) -> None:
    tree = spec_of(1).to_tree() | {"model": {"backbone": {"hidden": 8, "layers": 1, "ffn": 8, "vocab": 8}}}
    assert RunSpec.model_validate(tree).model.backbone is not None
    tree["model"]["backbone"]["kv_hidden"] = 16
    with pytest.raises(ValueError, match="kv_hidden must be at most hidden 8, got 16"):
        RunSpec.model_validate(tree)


def test_plan_when_placed_by_default_then_ranks_carry_nearly_equal_cost(make_rig: Make, spec_of: Make) -> None:
    rng = np.random.default_rng(4)
    lengths = (1 + rng.lognormal(6, 1.2, 3000)).astype(int).tolist()
    rig = make_rig(spec_of(1, seq_len=8192, microbatches=32), [lengths], dp=4)
    cost = costs_of(ModelSpec())[0]
    for plan in rig.steps(5):
        rank_D = np.bincount(plan.pieces.bin // 8, weights=cost(rig.tokens_of(plan)), minlength=4)
        assert rank_D.max() <= 1.006 * rank_D.mean()


def test_planner_when_it_is_watched_then_every_step_is_shown_placed(make_rig: Make, spec_of: Make) -> None:
    seen: list[DGraph] = []
    rig = make_rig(spec_of(1), LENGTHS, dp=4)
    rig.planner = StreamPlanner(rig.spec, "train", [s.lanes for s in rig.sources], 4, on_placed=seen.append)
    plans = [rig.next(), rig.next()]
    for plan, graph in zip(plans, seen, strict=True):
        assert graph.shape.step == plan.step
        assert np.array_equal(graph.bin_N, plan.pieces.bin)
