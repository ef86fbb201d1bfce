"""The client place tree: the device mesh that a step's work is placed on.

# W = ranks (leaves), K = consumers of an axis
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from loadmaster_flight.spec import MeshSpec
from loadmaster_flight.wire.errors import MeshError

from .rows import Int64Array

Float64Array = npt.NDArray[np.float64]

WORLD = "world"
_LEFT_OUT: dict[str, int | str] = {"pp": 1, "dp": "auto", "cp": 1, "tp": 1}
"""Sizes of the axes that a trainer does not name."""
AXES = ("pp", "dp", "cp", "tp")
_CONSUMERS = {"dp": ("dp",), "cp": ("dp", "cp"), WORLD: ()}
_DEVICE_MESH_AXES = {
    "dp": "dp", "dp_replicate": "dp", "dp_shard": "dp", "ddp": "dp", "fsdp": "dp", "data": "dp",
    "pp": "pp", "pipe": "pp", "cp": "cp", "context": "cp", "tp": "tp", "model": "tp",
}  # fmt: skip


class Role(StrEnum):
    """What an axis does to a batch. split: each index has samples of its own. slice: each has a part of every
    sample's tokens. replicate: all see the same (pp: the fields of their stage)."""

    SPLIT = "split"
    SLICE = "slice"
    REPLICATE = "replicate"


_ROLES = {"pp": Role.REPLICATE, "dp": Role.SPLIT, "cp": Role.SLICE, "tp": Role.REPLICATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlaceTree:
    """A mesh of ranks; rank numbers run over the axes with the last one fastest.

    Attributes:
        axes: Names, slowest first; an axis that is left out has size 1.
        shape: Size of each.
        roles: Role of each.
        speed_W: Relative speed of each rank, or None where all are equal.
    """

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    roles: tuple[Role, ...]
    speed_W: tuple[float, ...] | None = None

    @staticmethod
    def of(
        mesh: Mapping[str, int],
        roles: Mapping[str, str] | None = None,
        speed_of_leaf: Mapping[int, float] | None = None,
    ) -> ClientPlaceTree:
        """A tree from axis sizes, slowest axis first.

        Args:
            mesh: Axis (pp, dp, cp, tp; any order) -> size.
            roles: Axis -> role where it is not the usual one.
            speed_of_leaf: Rank -> relative speed; ranks that are not named have 1.

        Raises:
            MeshError: An axis, size, role or speed is impossible; names it.
        """
        _check_sizes(mesh)
        return ClientPlaceTree(
            axes=tuple(mesh),
            shape=tuple(mesh.values()),
            roles=_roles_of(mesh, roles or {}),
            speed_W=_speeds_of(speed_of_leaf or {}, math.prod(mesh.values())),
        )

    @staticmethod
    def from_spec(spec: MeshSpec, world_size: int, stated: Mapping[str, int] | None = None) -> ClientPlaceTree:
        """The tree that `world_size` ranks start on.

        Args:
            spec: A run's mesh; says the order of the axes, and their sizes where the trainer states none.
            stated: Axis -> size as the trainer has it. An axis that is not named has size 1, dp takes what is left.

        Raises:
            MeshError: An axis is unknown, the sizes do not multiply to world_size, or a speed is of no rank; names the
                numbers.
        """
        own = {"pp": spec.pp, "dp": spec.dp, "cp": spec.cp, "tp": spec.tp}
        _check_sizes(stated or {})
        sizes = {str(axis): stated.get(axis, _LEFT_OUT[axis]) if stated else own[axis] for axis in spec.order}
        others = math.prod(size for axis, size in sizes.items() if isinstance(size, int) and axis != "dp")
        dp = world_size // others if isinstance(sizes["dp"], str) else sizes["dp"]
        if dp < 1 or dp * others != world_size:
            raise MeshError(f"the mesh must have world_size = {world_size} ranks, got {_product(sizes)}", field="mesh")
        mesh = {axis: dp if axis == "dp" else int(size) for axis, size in sizes.items()}
        return ClientPlaceTree.of(mesh, speed_of_leaf=spec.speed_of_rank())

    @staticmethod
    def from_device_mesh(names: Sequence[str], shape: Sequence[int]) -> ClientPlaceTree:
        """The tree of a torch DeviceMesh: `mesh.mesh_dim_names`, `mesh.mesh.shape`.

        Neighbouring dims that split data (dp_replicate, dp_shard, fsdp, ...) are one axis dp.

        Raises:
            MeshError: A name is unknown or an axis is in two places.
        """
        if len(names) != len(shape):
            raise MeshError(f"a device mesh must have one name a dim, got {list(names)} for shape {list(shape)}")
        mesh: dict[str, int] = {}
        for name, size in zip(names, shape, strict=True):
            axis = _DEVICE_MESH_AXES.get(name)
            if axis is None:
                raise MeshError(f"device mesh dims must be of {sorted(_DEVICE_MESH_AXES)}, got {name!r}")
            if axis in mesh and next(reversed(mesh)) != axis:
                raise MeshError(f"device mesh dims of axis {axis} must be neighbours, got {list(names)}")
            mesh[axis] = mesh.get(axis, 1) * int(size)
        return ClientPlaceTree.of(mesh)

    @staticmethod
    def from_megatron(tp: int, pp: int, cp: int, dp: int, order: str = "tp-cp-ep-dp-pp") -> ClientPlaceTree:
        """The tree of Megatron-LM's sizes; `order` is its `--use-tp-pp-dp-mapping` order, fastest axis first.

        Expert parallelism divides dp for the experts only: `ep` in the order is passed over.

        Raises:
            MeshError: The order does not name tp, cp, dp and pp once each.
        """
        names = [name for name in reversed(order.split("-")) if name != "ep"]
        if sorted(names) != sorted(AXES):
            raise MeshError(f"order must name tp, cp, dp and pp once each, got {order!r}")
        sizes = {"tp": tp, "pp": pp, "cp": cp, "dp": dp}
        return ClientPlaceTree.of({name: sizes[name] for name in names})

    @property
    def world_size(self) -> int:
        """W."""
        return math.prod(self.shape)

    @property
    def mesh(self) -> dict[str, int]:
        """Axis -> size, slowest first."""
        return dict(zip(self.axes, self.shape, strict=True))

    def size(self, axis: str) -> int:
        """Ranks along an axis."""
        return self.mesh.get(axis, 1)

    def role(self, axis: str) -> Role:
        """What an axis does to a batch."""
        return dict(zip(self.axes, self.roles, strict=True)).get(axis, _ROLES[axis])

    def coords(self, rank: int) -> dict[str, int]:
        """Where a rank is.

        Raises:
            MeshError: There is no such rank.
        """
        if not 0 <= rank < self.world_size:
            raise MeshError(f"rank must be in [0, {self.world_size}), got {rank}")
        place = np.unravel_index(rank, self.shape) if self.shape else ()
        return {axis: int(index) for axis, index in zip(self.axes, place, strict=True)}

    def leaves(self, **index: int) -> Int64Array:
        """Ranks at the given coordinates (`leaves(dp=1, cp=0)`), ascending; without any: all. int64."""
        ranks = np.arange(self.world_size).reshape(self.shape)
        for axis, at in index.items():
            if not 0 <= at < self.size(axis):
                raise MeshError(f"{axis} must be in [0, {self.size(axis)}), got {at}")
        picks = tuple(index.get(axis, slice(None)) for axis in self.axes)
        return np.sort(ranks[picks].reshape(-1)).astype(np.int64)

    def groups(self, axis: str) -> Int64Array:
        """The groups of ranks that differ along one axis alone, int64 (groups, size), by their first rank."""
        ranks = np.arange(self.world_size, dtype=np.int64).reshape(self.shape)
        if axis not in self.axes:
            return ranks.reshape(-1, 1)
        return np.moveaxis(ranks, self.axes.index(axis), -1).reshape(-1, self.size(axis))

    def consumers(self, axis: str) -> Int64Array:
        """Ranks of each consumer that work is distributed to, int64 (K, ranks of a consumer).

        dp: consumer d is the ranks with dp = d. cp: consumer d * cp + c. world: each rank.

        Raises:
            MeshError: Nothing can be distributed over that axis.
        """
        if axis not in _CONSUMERS:
            raise MeshError(f"distribute must name an axis of {list(_CONSUMERS)}, got {axis!r}")
        if axis == WORLD:
            return np.arange(self.world_size, dtype=np.int64).reshape(-1, 1)
        kept = [name for name in _CONSUMERS[axis] if name in self.axes]
        ranks = np.arange(self.world_size, dtype=np.int64).reshape(self.shape)
        front = np.moveaxis(ranks, [self.axes.index(name) for name in kept], range(len(kept)))
        return front.reshape(math.prod(self.size(name) for name in kept), -1)

    def speeds(self, axis: str) -> Float64Array:
        """Relative speed of each consumer of an axis, float64 (K,): that of its slowest rank, as the others wait."""
        consumers = self.consumers(axis)
        if self.speed_W is None:
            return np.ones(len(consumers))
        return np.asarray(np.array(self.speed_W)[consumers].min(axis=1), np.float64)


def _check_sizes(mesh: Mapping[str, int]) -> None:
    for axis, size in mesh.items():
        if axis not in AXES:
            raise MeshError(f"mesh must have axes of {list(AXES)}, got {axis!r}")
        if size < 1:
            raise MeshError(f"mesh.{axis} must be at least 1, got {size}")


def _roles_of(mesh: Mapping[str, int], stated: Mapping[str, str]) -> tuple[Role, ...]:
    for axis, role in stated.items():
        if axis not in mesh:
            raise MeshError(f"roles must name axes of {list(mesh)}, got {axis!r}")
        if role not in list(Role):
            raise MeshError(f"roles.{axis} must be one of {[r.value for r in Role]}, got {role!r}")
    return tuple(Role(stated.get(axis, _ROLES[axis])) for axis in mesh)


def _speeds_of(stated: Mapping[int, float], world_size: int) -> tuple[float, ...] | None:
    if not stated:
        return None
    speed_W = np.ones(world_size)
    for rank, speed in stated.items():
        if not 0 <= rank < world_size:
            raise MeshError(f"mesh.speed must name ranks in [0, {world_size}), got {rank}", field="mesh.speed")
        if not (speed > 0 and math.isfinite(speed)):
            text = f"mesh.speed of rank {rank} must be positive and finite, got {speed}"
            raise MeshError(text, field="mesh.speed")
        speed_W[rank] = speed
    return tuple(speed_W.tolist())


def _product(mesh: Mapping[str, int | str]) -> str:
    return " * ".join(f"{axis} {size}" for axis, size in mesh.items())
