"""The device mesh that a set of ranks starts on: coordinates, and whether the run's batches fit it."""

from __future__ import annotations

import math

from loadmaster_flight.spec import MeshSpec, RunSpec
from loadmaster_flight.spec.mesh import StageFields
from loadmaster_flight.wire.errors import MeshError

from ..planning.place_tree import ClientPlaceTree


def coords_of(mesh: dict[str, int], rank: int) -> dict[str, int]:
    """Coordinates of a rank: the slowest axis comes first in `mesh`."""
    return ClientPlaceTree.of(mesh).coords(rank)


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


def check_spec(spec: RunSpec) -> None:
    """Refuse a run whose mesh no set of ranks can start on.

    Where dp is auto its steps decide how many ranks there can be at most; whatever needs dp itself is left to joining.

    Raises:
        MeshError: A stream's steps cannot be dealt to the mesh, or cut for it, or a speed is of a rank that cannot be;
            names rule and numbers.
    """
    own = spec.mesh
    mesh = {"pp": own.pp, "dp": own.dp if isinstance(own.dp, int) else 1, "cp": own.cp, "tp": own.tp}
    for stream in spec.stream_names:
        check_batch(mesh, spec, stream)
    most = own.dp if isinstance(own.dp, int) else max(math.gcd(*_bin_counts(spec, s)) for s in spec.stream_names)
    ClientPlaceTree.of(mesh | {"dp": most}, speed_of_leaf=own.speed_of_rank())


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
