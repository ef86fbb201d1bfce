from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.spec import MeshSpec, RunSpec
from loadmaster_flight.wire.errors import MeshError
from loadmaster_server.runs.mesh import check_batch, check_coords, check_spec, coords_of

AXES = ("pp", "dp", "cp", "tp")


def _spec(**batch: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "run": "run",
            "sources": {"web": {"uri": "web.jsonl", "transform": {"text": "text"}}},
            "mixture": {"weights": {"web": 1}},
            "batch": {"seq_len": 256, "microbatches": 8} | batch,
            "evaluation": {"held_out": {"sources": ["web"], "microbatches": 3}},
        }
    )


@given(st.lists(st.integers(1, 4), min_size=4, max_size=4))
def test_coords_when_all_ranks_are_asked_then_each_place_once(sizes: list[int]) -> None:
    mesh = dict(zip(AXES, sizes, strict=True))
    places = [tuple(coords_of(mesh, rank).values()) for rank in range(math.prod(sizes))]
    assert places == sorted(set(places))
    assert len(places) == math.prod(sizes)


def test_check_coords_when_they_differ_then_names_axis_and_both() -> None:
    mesh = {"pp": 1, "dp": 2, "cp": 1, "tp": 2}
    assert check_coords(mesh, 1, {"tp": 1}) == {"pp": 0, "dp": 0, "cp": 0, "tp": 1}
    with pytest.raises(MeshError, match=r"rank 1 says dp = 1, but in the mesh \(pp 1, dp 2, cp 1, tp 2\) it is 0"):
        check_coords(mesh, 1, {"dp": 1})
    with pytest.raises(MeshError, match="got 'xp' from rank 1"):
        check_coords(mesh, 1, {"xp": 1})


@pytest.mark.parametrize(
    ("batch", "mesh", "stream", "says"),
    [
        ({}, {"dp": 3}, "train", "got dp 3 and 8 microbatches in train"),
        ({}, {"dp": 2}, "held_out", "got dp 2 and 3 microbatches in held_out"),
        ({"align": 4}, {"cp": 4}, "train", "got cp 4 and align 4"),
        ({"seq_len": 48, "align": 16}, {"cp": 2, "tp": 8}, "train", "got cp 2, tp 8 and 48 tokens"),
        ({"microbatches": [{"at": 0, "value": 8}, {"at": 9, "value": 16}]}, {"dp": 2}, "train", "got dp 2 and 1 "),
        ({"align": 12, "seq_len": 48}, {"cp": 4}, "train", "2 . cp must divide align, got cp 4 and align 12"),
    ],
)
def test_check_batch_when_it_does_not_divide_then_names_the_numbers(
    batch: dict[str, Any], mesh: dict[str, int], stream: str, says: str
) -> None:
    with pytest.raises(MeshError, match=says):
        check_batch({"pp": 1, "dp": 1, "cp": 1, "tp": 1} | mesh, _spec(**batch), stream)


def test_check_batch_when_a_field_is_for_a_stage_that_is_not_there_then_refused() -> None:
    spec = _spec()
    mesh = MeshSpec.model_validate({"stage_fields": {"labels": [1, 3]}})
    staged = spec.model_copy(update={"mesh": mesh})
    check_batch({"pp": 4, "dp": 1, "cp": 1, "tp": 1}, staged, "train")
    with pytest.raises(MeshError, match=r"stage_fields\.labels must name stages in \[0, pp = 2\), got 3"):
        check_batch({"pp": 2, "dp": 1, "cp": 1, "tp": 1}, staged, "train")


def test_check_batch_when_ramp_has_a_multiple_then_dp_divides_that() -> None:
    batch = {"microbatches": [{"at": 0, "value": 8}, {"at": 9, "value": 16}], "g_multiple": 8}
    check_batch({"pp": 1, "dp": 4, "cp": 1, "tp": 1}, _spec(**batch), "train")


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ({"dp": 2, "speed": {2: 0.5}}, r"mesh\.speed must name ranks in \[0, 2\), got 2"),
        ({"dp": 2, "pp": 2, "speed": {4: 0.5}}, r"mesh\.speed must name ranks in \[0, 4\), got 4"),
        ({"speed": {8: 0.5}}, r"mesh\.speed must name ranks in \[0, 8\), got 8"),
        ({"dp": 3}, "got dp 3 and 8 microbatches in train"),
        ({"cp": 16}, "got cp 16 and align 16"),
    ],
)
def test_check_spec_when_no_ranks_could_start_then_the_rule_is_named(mesh: dict[str, Any], says: str) -> None:
    with pytest.raises(MeshError, match=says):
        check_spec(_spec().model_copy(update={"mesh": MeshSpec.model_validate(mesh), "evaluation": {}}))


def test_check_spec_when_dp_is_auto_then_speeds_of_as_many_ranks_as_steps_allow() -> None:
    check_spec(_spec().model_copy(update={"mesh": MeshSpec(tp=2, speed={15: 0.5})}))
    with pytest.raises(MeshError, match=r"in \[0, 16\), got 16"):
        check_spec(_spec().model_copy(update={"mesh": MeshSpec(tp=2, speed={16: 0.5})}))
