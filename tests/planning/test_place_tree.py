"""The mesh as a tree of places."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.spec import MeshSpec
from loadmaster_flight.wire.errors import MeshError
from loadmaster_server.planning import ClientPlaceTree
from loadmaster_server.planning.place_tree import Role

MESHES = st.permutations(["pp", "dp", "cp", "tp"]).flatmap(
    lambda axes: st.tuples(*[st.integers(1, 4)] * 4).map(lambda sizes: dict(zip(axes, sizes, strict=True)))
)


@given(mesh=MESHES)
def test_coords_when_axes_are_in_any_order_then_the_last_axis_is_fastest(mesh: dict[str, int]) -> None:
    tree = ClientPlaceTree.of(mesh)
    places = list(itertools.product(*(range(size) for size in mesh.values())))
    assert [tuple(tree.coords(rank).values()) for rank in range(tree.world_size)] == places


@given(mesh=MESHES)
def test_groups_when_taken_along_an_axis_then_every_rank_is_in_one_and_only_that_axis_differs(
    mesh: dict[str, int],
) -> None:
    tree = ClientPlaceTree.of(mesh)
    for axis in mesh:
        groups = tree.groups(axis)
        assert sorted(groups.reshape(-1).tolist()) == list(range(tree.world_size))
        for group in groups.tolist():
            coords = [tree.coords(rank) for rank in group]
            assert [c.pop(axis) for c in coords] == list(range(mesh[axis]))
            assert all(c == coords[0] for c in coords)


@given(mesh=MESHES)
def test_consumers_when_over_dp_or_cp_then_their_ranks_share_the_coordinates(mesh: dict[str, int]) -> None:
    tree = ClientPlaceTree.of(mesh)
    for d, ranks in enumerate(tree.consumers("dp").tolist()):
        assert sorted(ranks) == tree.leaves(dp=d).tolist()
    for k, ranks in enumerate(tree.consumers("cp").tolist()):
        d, c = divmod(k, mesh["cp"])
        assert sorted(ranks) == tree.leaves(dp=d, cp=c).tolist()
    assert tree.consumers("world").tolist() == [[rank] for rank in range(tree.world_size)]


def test_axes_when_left_out_then_their_size_is_one() -> None:
    tree = ClientPlaceTree.of({"dp": 2, "tp": 2})
    assert (tree.world_size, tree.size("cp"), tree.mesh) == (4, 1, {"dp": 2, "tp": 2})
    assert tree.groups("pp").tolist() == [[0], [1], [2], [3]]
    assert ClientPlaceTree.of({}).coords(0) == {}


def test_roles_when_not_stated_then_the_usual_ones() -> None:
    tree = ClientPlaceTree.of({"dp": 2, "cp": 2, "tp": 2}, roles={"tp": "slice"})
    assert [tree.role(axis) for axis in ("pp", "dp", "cp", "tp")] == [
        Role.REPLICATE, Role.SPLIT, Role.SLICE, Role.SLICE,
    ]  # fmt: skip


def test_from_spec_when_dp_is_auto_then_it_takes_what_is_left() -> None:
    tree = ClientPlaceTree.from_spec(MeshSpec(pp=2, tp=2, order=("dp", "pp", "tp", "cp")), 24)
    assert tree.mesh == {"dp": 6, "pp": 2, "tp": 2, "cp": 1}


@pytest.mark.parametrize(
    ("spec", "stated", "world_size", "sizes"),
    [
        ({}, {}, 6, (1, 6, 1, 1)),
        ({"pp": 2, "tp": 2}, {}, 8, (2, 2, 1, 2)),
        ({"dp": 4}, {}, 4, (1, 4, 1, 1)),
        ({"dp": 4, "tp": 2}, {"dp": 2}, 2, (1, 2, 1, 1)),
        ({"tp": 2}, {"cp": 2}, 8, (1, 4, 2, 1)),
    ],
)
def test_from_spec_when_sizes_fit_then_all_axes(
    spec: dict[str, int], stated: dict[str, int], world_size: int, sizes: tuple[int, ...]
) -> None:
    mesh = ClientPlaceTree.from_spec(MeshSpec.model_validate(spec), world_size, stated).mesh
    assert mesh == dict(zip(("pp", "dp", "cp", "tp"), sizes, strict=True))


def test_from_spec_when_order_is_given_then_slowest_first() -> None:
    spec = MeshSpec.model_validate({"order": ["dp", "pp", "tp", "cp"], "pp": 2})
    assert list(ClientPlaceTree.from_spec(spec, 4).mesh.items()) == [("dp", 2), ("pp", 2), ("tp", 1), ("cp", 1)]


@pytest.mark.parametrize(
    ("stated", "world_size", "says"),
    [
        ({"dp": 3}, 4, "world_size = 4 ranks, got pp 1 . dp 3"),
        ({"tp": 8}, 4, "got pp 1 . dp auto . cp 1 . tp 8"),
        ({"tp": 0}, 4, "mesh.tp must be at least 1, got 0"),
        ({"ep": 2}, 4, "got 'ep'"),
    ],
)
def test_from_spec_when_sizes_do_not_fit_then_names_the_numbers(
    stated: dict[str, int], world_size: int, says: str
) -> None:
    with pytest.raises(MeshError, match=says):
        ClientPlaceTree.from_spec(MeshSpec(), world_size, stated)


def test_from_spec_when_a_speed_is_of_no_rank_then_it_is_named() -> None:
    spec = MeshSpec(speed={3: 0.5})
    assert ClientPlaceTree.from_spec(spec, 4).speeds("dp").tolist() == [1.0, 1.0, 1.0, 0.5]
    with pytest.raises(MeshError, match=r"mesh\.speed must name ranks in \[0, 2\), got 3"):
        ClientPlaceTree.from_spec(spec, 2)


def test_from_device_mesh_when_data_has_two_dims_then_they_are_one_axis() -> None:
    tree = ClientPlaceTree.from_device_mesh(("pp", "dp_replicate", "dp_shard", "tp"), (2, 2, 4, 2))
    assert tree.mesh == {"pp": 2, "dp": 8, "tp": 2}


def test_from_megatron_when_in_its_default_order_then_tp_is_fastest() -> None:
    tree = ClientPlaceTree.from_megatron(2, 2, 1, 4)
    assert tree.mesh == {"pp": 2, "dp": 4, "cp": 1, "tp": 2}
    assert tree.groups("tp").tolist()[0] == [0, 1]
    assert tree.groups("dp").tolist()[0] == [0, 2, 4, 6]
    assert ClientPlaceTree.from_megatron(2, 2, 1, 4, order="tp-cp-ep-pp-dp").groups("pp").tolist()[0] == [0, 2]


def test_speeds_when_a_leaf_is_slow_then_its_whole_dp_rank_is() -> None:
    tree = ClientPlaceTree.of({"dp": 2, "tp": 2}, speed_of_leaf={3: 0.5})
    assert tree.speeds("dp").tolist() == [1.0, 0.5]
    assert tree.speeds("world").tolist() == [1.0, 1.0, 1.0, 0.5]
    assert np.array_equal(ClientPlaceTree.of({"dp": 3}).speeds("dp"), np.ones(3))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ClientPlaceTree.of({"ep": 2}), r"mesh must have axes of .*, got 'ep'"),
        (lambda: ClientPlaceTree.of({"dp": 0}), r"mesh\.dp must be at least 1, got 0"),
        (lambda: ClientPlaceTree.of({"dp": 2}, roles={"tp": "split"}), "roles must name axes of"),
        (lambda: ClientPlaceTree.of({"dp": 2}, roles={"dp": "cut"}), r"roles\.dp must be one of .*, got 'cut'"),
        (
            lambda: ClientPlaceTree.of({"dp": 2}, speed_of_leaf={2: 1.0}),
            r"mesh\.speed must name ranks in \[0, 2\), got 2",
        ),
        (lambda: ClientPlaceTree.of({"dp": 2}, speed_of_leaf={1: 0.0}), r"mesh\.speed of rank 1 must be positive"),
        (lambda: ClientPlaceTree.of({"dp": 2}).coords(2), r"rank must be in \[0, 2\), got 2"),
        (lambda: ClientPlaceTree.of({"dp": 2}).leaves(dp=5), r"dp must be in \[0, 2\), got 5"),
        (lambda: ClientPlaceTree.of({"dp": 2}).consumers("tp"), "distribute must name an axis of"),
        (lambda: ClientPlaceTree.from_spec(MeshSpec(dp=2, tp=2), 6), r"world_size = 6 ranks, got pp 1 \* dp 2"),
        (lambda: ClientPlaceTree.from_spec(MeshSpec(tp=8), 4), "world_size = 4 ranks"),
        (lambda: ClientPlaceTree.from_device_mesh(("dp", "tp", "dp_shard"), (2, 2, 2)), "must be neighbours"),
        (lambda: ClientPlaceTree.from_device_mesh(("dp", "rows"), (2, 2)), "got 'rows'"),
        (lambda: ClientPlaceTree.from_device_mesh(("dp",), (2, 2)), "one name a dim"),
        (lambda: ClientPlaceTree.from_megatron(1, 1, 1, 1, order="tp-dp-pp"), "order must name tp, cp, dp and pp"),
    ],
)
def test_tree_when_impossible_then_the_rule_and_the_value_are_named(make: Callable[[], object], says: str) -> None:
    with pytest.raises(MeshError, match=says):
        make()
