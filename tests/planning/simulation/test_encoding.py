"""Evenness of the encoder's work in a simulated step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.schemas import METADATA
from loadmaster_server.planning import DGraph
from loadmaster_server.planning.simulation.encoding import encoding_of
from loadmaster_server.planning.simulation.stepping import Stepper
from loadmaster_server.planning.strategies import BUILT_IN
from support.graphs import make_graph


def _placed(images: list[tuple[int, int]], **fields: object) -> DGraph:
    """Four pieces, one a microbatch: two of each of two dp ranks that have two ranks each."""
    graph = make_graph([100] * 4, mesh={"dp": 2, "tp": 2}, num_bins=4, capacity=256, packed=[0, 1, 2, 3], images=images)
    return replace(graph.placed(graph.nodes.packed_N), **fields)


def test_encoding_when_a_step_has_no_images_then_there_is_none() -> None:
    assert encoding_of(_placed([])) is None


def test_encoding_when_images_are_at_home_then_their_dp_rank_alone_has_the_work() -> None:
    found = encoding_of(_placed([(0, 100)] * 4 + [(3, 100)] * 2))
    assert found is not None
    assert (found.num_images, found.num_patches) == (6, 600)
    assert found.max_over_mean == found.at_home == pytest.approx((2 + 1) / 1.5)
    assert found.bound == pytest.approx((1 + 1) / 1.5)


def test_encoding_when_images_are_distributed_then_each_index_waits_for_its_costliest_rank() -> None:
    images = [(0, 100)] * 4 + [(3, 100)] * 2
    found = encoding_of(_placed(images, encoder_K=np.array([0, 1, 2, 3, 0, 1])))
    assert found is not None
    assert found.max_over_mean == pytest.approx(found.bound)
    same_total = encoding_of(_placed(images, encoder_K=np.array([0, 0, 1, 1, 2, 3])))
    assert same_total is not None
    assert same_total.max_over_mean == pytest.approx((2 + 1) / 1.5)
    assert same_total.at_home == found.at_home


@pytest.mark.parametrize("strategy", ["llm_balance", "vlm_hybrid"])
def test_stepper_when_rows_have_images_then_their_own_patches_are_simulated(
    strategy: str, spec_of, fake_source, batch_of
) -> None:
    patches = {i: [64 + i % 7 * 32] * (i % 5) for i in range(0, 400, 2)}
    fake = fake_source([200] * 400, 2, 16, patches=patches)
    spec = spec_of(1, strategy=strategy).model_dump(mode="json") | {"media": {"vision": {}}, "strategy": strategy}
    assert strategy in BUILT_IN

    def measure(demand):
        rows = [row for at in range(len(demand.cursors)) for row in fake.answer(demand, at).to_pylist()]
        return batch_of(rows).cast(METADATA)

    stepper = Stepper(RunSpec.model_validate(spec), {"dp": 2, "tp": 2}, [2], measure)
    steps = list(stepper.steps(3))
    for step in steps:
        assert step.encoding is not None
        assert step.encoding.num_images > 0
        assert step.encoding.bound - 1e-9 <= step.encoding.max_over_mean
    even = [step.encoding.max_over_mean for step in steps]
    assert even == [step.encoding.at_home for step in steps] or strategy == "vlm_hybrid"
    assert strategy == "llm_balance" or max(even) < min(step.encoding.at_home for step in steps)
