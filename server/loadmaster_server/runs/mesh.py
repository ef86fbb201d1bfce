"""The device mesh that a set of ranks starts on: sizes, coordinates, and whether the run's batches fit it."""

from __future__ import annotations

import math

import numpy as np

from loadmaster_flight.spec import MeshSpec, RunSpec
from loadmaster_flight.spec.mesh import StageFields
from loadmaster_flight.wire.errors import MeshError


def resolve_mesh(spec: MeshSpec, stated: dict[str, int], world_size: int) -> dict[str, int]:
    """Sizes of all axes, slowest first.

    Args:
        spec: The run's mesh; holds where the trainer states none, and says the order of the axes.
        stated: Axis -> size as the trainer has it. An axis that is not named has size 1, dp takes what is left.
        world_size: Number of ranks.

    Raises:
        MeshError: An axis is unknown, or the sizes do not multiply to world_size; names the numbers.
    """
    for axis, size in stated.items():
        if axis not in spec.order:
            raise MeshError(f"mesh must have axes of {list(spec.order)}, got {axis!r}")
        if size < 1:
            raise MeshError(f"mesh.{axis} must be at least 1, got {size}")
    own = {"pp": spec.pp, "dp": 1, "cp": spec.cp, "tp": spec.tp}
    sizes = {str(axis): stated.get(axis, 1) if stated else own[axis] for axis in spec.order}
    others = math.prod(size for axis, size in sizes.items() if axis != "dp")
    dp = stated.get("dp", "auto") if stated else spec.dp
    sizes["dp"] = world_size // others if isinstance(dp, str) else dp
    if sizes["dp"] * others != world_size or sizes["dp"] < 1:
        named = " * ".join(f"{axis} {'auto' if axis == 'dp' and dp == 'auto' else n}" for axis, n in sizes.items())
        raise MeshError(f"the mesh must have world_size = {world_size} ranks, got {named}")
    return sizes


def coords_of(mesh: dict[str, int], rank: int) -> dict[str, int]:
    """Coordinates of a rank: the slowest axis comes first in `mesh`."""
    place = np.unravel_index(rank, tuple(mesh.values()))
    return {axis: int(index) for axis, index in zip(mesh, place, strict=True)}


def check_coords(mesh: dict[str, int], rank: int, stated: dict[str, int]) -> dict[str, int]:
    """Coordinates of a rank, which must be what the rank itself says where it says anything.

    Raises:
        MeshError: They differ; names rank, axis and both numbers.
    """
    coords = coords_of(mesh, rank)
    for axis, index in stated.items():
        if axis not in coords:
            raise MeshError(f"coords must have axes of {list(coords)}, got {axis!r} from rank {rank}")
        if coords[axis] != index:
            shape = ", ".join(f"{name} {size}" for name, size in mesh.items())
            raise MeshError(f"rank {rank} says {axis} = {index}, but in the mesh ({shape}) it is {coords[axis]}")
    return coords


def check_batch(mesh: dict[str, int], spec: RunSpec, stream: str) -> None:
    """Refuse a mesh that a stream's steps cannot be dealt to.

    Raises:
        MeshError: G % dp, align % (2*cp) or C % (2*cp*tp) is not 0, or a field is for a stage that is not there;
            names the numbers, and in its details the field.
    """
    _check_stages(mesh["pp"], spec.mesh)
    dp, cp, tp = mesh["dp"], mesh["cp"], mesh["tp"]
    for num_bins in _bin_counts(spec, stream):
        if num_bins % dp:
            text = f"dp must divide microbatches, got dp {dp} and {num_bins} microbatches in {stream}"
            raise MeshError(text, field="mesh.dp")
    if cp > 1 and spec.batch.align % (2 * cp):
        raise MeshError(f"2 * cp must divide align, got cp {cp} and align {spec.batch.align}", field="batch.align")
    for capacity in _capacities(spec):
        if cp * tp > 1 and capacity % (2 * cp * tp):
            text = f"2 * cp * tp must divide seq_len, got cp {cp}, tp {tp} and {capacity} tokens"
            raise MeshError(text, field="batch.seq_len")


def _check_stages(pp: int, spec: MeshSpec) -> None:
    for field in StageFields.model_fields:
        wrong = next((s for s in spec.stages_of(field) if isinstance(s, int) and s >= pp), None)
        if wrong is not None:
            text = f"stage_fields.{field} must name stages in [0, pp = {pp}), got {wrong}"
            raise MeshError(text, field=f"mesh.stage_fields.{field}")


def _bin_counts(spec: RunSpec, stream: str) -> set[int]:
    evaluation = spec.evaluation.get(stream)
    if evaluation is not None:
        return {evaluation.microbatches or spec.batch.num_bins_at(0)}
    is_ramp = len(spec.batch.microbatches.knots) > 1
    return {spec.batch.g_multiple} if is_ramp else {spec.batch.num_bins_at(0)}


def _capacities(spec: RunSpec) -> set[int]:
    batch = spec.batch
    is_ramp = len(batch.seq_len.knots) > 1
    return {(batch.c_multiple or batch.align) * batch.rows} if is_ramp else {batch.capacity_at(0)}
