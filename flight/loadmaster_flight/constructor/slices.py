"""A dp rank's microbatches, cut for each of its cp ranks and pipeline stages; tp ranks share what they read.

# M = microbatches, C = tokens of a microbatch, T = C / cp, W = ranks served
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.spec import MeshSpec, RunSpec
from loadmaster_flight.spec.mesh import TpMode
from loadmaster_flight.wire.control import Assignment
from loadmaster_flight.wire.errors import MeshError
from loadmaster_flight.wire.slicing import RankSeat, SlicePlace, zigzag_index
from loadmaster_flight.wire.step_plan import StepPlan

from .assemble import assemble
from .delivery import Delivery
from .encoding import ENCODER_FIELDS, StepEncoding
from .modalities import run_schema, vision_fields

Int64Array = npt.NDArray[np.int64]
Slot = tuple[int, SlicePlace]
"""dp rank and place: what is built once, for all the ranks that differ in tp alone."""


def build_ranks(
    plan: StepPlan,
    pieces: Delivery | pa.RecordBatch | pa.Table,
    spec: RunSpec,
    sizes: Mapping[str, int],
    slot_of: Mapping[int, Slot],
) -> dict[int, pa.RecordBatch]:
    """A step's batch for each rank. Whole microbatches are kept no longer than it takes to cut them.

    Ranks of one slot share one batch; in a hybrid step each has a batch of its own, which shares all columns but
    ENCODER_FIELDS with the others of its slot.

    Args:
        plan: Holds the ranks' bins and units.
        pieces: Schema PIECES; what more than one step or rank needs may be taken once, as a `Delivery`.
        spec: The run.
        sizes: Axis sizes of the mesh, slowest first.
        slot_of: Global rank -> slot.

    Raises:
        MeshError: The step is hybrid, and ranks get their batches from another one.
        InternalError: The pieces are not what was planned; names step and piece.
    """
    delivery = pieces if isinstance(pieces, Delivery) else Delivery.of(pieces)
    encoding = _encoding(plan, delivery, spec, sizes)
    slots: dict[Slot, pa.RecordBatch] = {}
    for dp_rank in sorted({dp for dp, _ in slot_of.values()}):
        whole = assemble(plan, delivery, spec.batch, dp_rank, media=spec.media, encoding=encoding)
        places = {place for dp, place in slot_of.values() if dp == dp_rank}
        slots |= {(dp_rank, place): part for place, part in cut_all(whole, places, spec.mesh).items()}
    if encoding is None:
        return {rank: slots[slot] for rank, slot in slot_of.items()}
    schema = run_schema(spec, seq_len=plan.seq_len, is_hybrid=True)
    own = {rank: rank_schema(schema, slot[1], spec.mesh, rank=rank, sizes=sizes) for rank, slot in slot_of.items()}
    return {rank: _with_own(slots[slot], encoding, rank, own[rank]) for rank, slot in slot_of.items()}


def _encoding(plan: StepPlan, delivery: Delivery, spec: RunSpec, sizes: Mapping[str, int]) -> StepEncoding | None:
    vision = vision_fields(spec.media.vision)
    if not plan.is_hybrid or vision is None:
        return None
    if spec.mesh.tp_mode is not TpMode.READ and sizes.get("tp", 1) > 1:
        raise MeshError(f"mesh.tp_mode must be read where every rank encodes images, got {spec.mesh.tp_mode.value}")
    return StepEncoding(plan, delivery, vision)


def _with_own(part: pa.RecordBatch, encoding: StepEncoding, rank: int, schema: pa.Schema) -> pa.RecordBatch:
    """A slot's batch and what one of its ranks encodes."""
    own = encoding.columns(rank, schema)
    columns = [own[name] if name in own else part.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cut(batch: pa.RecordBatch, place: SlicePlace, mesh: MeshSpec) -> pa.RecordBatch:
    """The part of some whole microbatches that belongs to one place. Pure; any thread.

    cp: fields of axis token keep the tokens of `zigzag_index`; all others stay whole, `cu_seqlens` too. pp: fields
    that `mesh.stage_fields` leaves out at the stage are dropped. The schema says the place.

    Args:
        batch: What `assemble` makes; one row a microbatch.
        place: Whose part.
        mesh: Says which stages get which fields.

    Raises:
        MeshError: A segment cannot be cut into 2*cp equal chunks.
    """
    return cut_all(batch, [place], mesh)[place]


def cut_all(batch: pa.RecordBatch, places: Iterable[SlicePlace], mesh: MeshSpec) -> dict[SlicePlace, pa.RecordBatch]:
    """`cut` for several places: tokens are copied once a cp rank, stages share the columns."""
    parts: dict[tuple[int, int], pa.RecordBatch] = {}
    slices: dict[SlicePlace, pa.RecordBatch] = {}
    for place in places:
        key = place.cp, place.cp_rank
        if key not in parts:
            parts[key] = _cp_part(batch, place)
        slices[place] = _stage_part(parts[key], place, mesh)
    return slices


def slice_schema(schema: pa.Schema, place: SlicePlace, mesh: MeshSpec) -> pa.Schema:
    """Schema of the place's part of batches of a schema."""
    fields = [_cp_field(field, place.cp) for field in schema]
    kept = [field for field in fields if _is_kept(field.name, schema, place, mesh)]
    return pa.schema(kept, metadata={**(schema.metadata or {}), **place.to_metadata()})


def rank_schema(
    schema: pa.Schema, place: SlicePlace, mesh: MeshSpec, *, rank: int, sizes: Mapping[str, int]
) -> pa.Schema:
    """Schema of one rank's batches of a schema; a hybrid one says whose it is, since it is no other's."""
    part = slice_schema(schema, place, mesh)
    if not is_hybrid_schema(schema):
        return part
    seat = RankSeat(rank=rank, mesh=dict(sizes))
    return part.with_metadata({**part.metadata, **seat.to_metadata()})


def is_hybrid_schema(schema: pa.Schema) -> bool:
    """Whether ranks get what they encode, and not their own images."""
    return "encoder_dp" in schema.names


def slot_at(mesh: Mapping[str, int], coords: Mapping[str, int]) -> Slot:
    """The slot of a rank by its mesh's sizes and its own coordinates."""
    return coords["dp"], SlicePlace.of(mesh, coords)


def coords_of(assignment: Assignment) -> dict[int, dict[str, int]]:
    """Mesh coordinates of each rank that an assignment names; the slowest axis comes first in its mesh."""
    axes, sizes = list(assignment.mesh), tuple(assignment.mesh.values())
    index_W = np.stack(np.unravel_index(np.asarray(assignment.ranks, np.int64), sizes), axis=1).tolist()
    return {rank: dict(zip(axes, place, strict=True)) for rank, place in zip(assignment.ranks, index_W, strict=True)}


def _cp_part(batch: pa.RecordBatch, place: SlicePlace) -> pa.RecordBatch:
    if place.cp == 1:
        return batch
    schema = pa.schema([_cp_field(field, place.cp) for field in batch.schema], metadata=batch.schema.metadata)
    index_M = [zigzag_index(ends, place.cp, place.cp_rank) for ends in _boundaries(batch)]
    columns = [
        _take(batch.column(field.name), index_M, field.type) if _is_cut(field) else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _stage_part(batch: pa.RecordBatch, place: SlicePlace, mesh: MeshSpec) -> pa.RecordBatch:
    kept = [n for n in batch.schema.names if _is_kept(n, batch.schema, place, mesh)]
    schema = pa.schema([batch.schema.field(n) for n in kept])
    metadata = {**(batch.schema.metadata or {}), **place.to_metadata()}
    return pa.RecordBatch.from_arrays([batch.column(n) for n in kept], schema=schema.with_metadata(metadata))


def _is_kept(name: str, schema: pa.Schema, place: SlicePlace, mesh: MeshSpec) -> bool:
    """Whether a stage gets a field. What a rank encodes it gets on every stage."""
    is_own = is_hybrid_schema(schema) and name in ENCODER_FIELDS
    return is_own or mesh.is_on_stage(name, stage=place.pp_rank, num_stages=place.pp)


def _is_cut(field: pa.Field) -> bool:
    return (field.metadata or {}).get(b"axis") == b"token"


def _cp_field(field: pa.Field, cp: int) -> pa.Field:
    if cp == 1 or not _is_cut(field):
        return field
    num_tokens, *rest = field.type.shape
    return field.with_type(pa.fixed_shape_tensor(field.type.value_type, [num_tokens // cp, *rest]))


def _boundaries(batch: pa.RecordBatch) -> list[npt.NDArray[np.integer]]:
    column = batch.column("cu_seqlens")
    flat = column.flatten().to_numpy(zero_copy_only=False)
    lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
    return np.split(flat, np.cumsum(lengths)[:-1])


def _take(column: pa.Array, index_M: Sequence[Int64Array], kind: pa.DataType) -> pa.Array:
    """The tokens of each row that are the place's; (M, C, ...) becomes (M, T, ...)."""
    rows = column.to_numpy_ndarray()
    part = np.stack([row[index] for row, index in zip(rows, index_M, strict=True)])
    storage = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), int(np.prod(part.shape[1:])))
    return pa.ExtensionArray.from_storage(kind, storage)
