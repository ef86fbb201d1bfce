"""One step's loading plan as arrays, and its compact Arrow form.

# N = pieces, R = ranges, S = sources, U = units of media, M = pieces with media
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import BadRequestError
from .schemas import STEP_PLAN

Int64Array = npt.NDArray[np.int64]
PIECE_COLUMNS = ("source", "epoch", "lane", "shard", "block", "pos", "first_token", "num_tokens", "bin")
MaskedSample = tuple[int, int, int, int, int]
_MASKED = b"masked"
_RANGE_COLUMNS = ("source", "epoch", "lane", "shard", "block", "pos")
_SHORT = ("bins", "unit_rank")
COMPRESSED_BYTES = 1 << 14
WHOLE = -1
"""num_tokens of a piece that is a whole sample: its length is known to whoever measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Pieces of a step, struct of arrays, each of shape (N,), int64.

    Canonical order is ascending (source, epoch, shard, block, pos, first_token). `first_token` and `num_tokens` are 0
    and WHOLE for a sample that is placed whole.
    """

    source: Int64Array
    epoch: Int64Array
    lane: Int64Array
    shard: Int64Array
    block: Int64Array
    pos: Int64Array
    first_token: Int64Array
    num_tokens: Int64Array
    bin: Int64Array

    def __len__(self) -> int:
        return len(self.source)

    def take(self, index: npt.NDArray[np.generic]) -> Pieces:
        """The pieces at `index` (positions or a mask), in that order."""
        return Pieces(**{name: getattr(self, name)[index] for name in PIECE_COLUMNS})

    def canonical_order(self) -> Int64Array:
        """Positions that sort the pieces canonically, int64 (N,)."""
        keys = (self.first_token, self.pos, self.block, self.shard, self.epoch, self.source)
        return np.lexsort(keys).astype(np.int64)

    @staticmethod
    def empty() -> Pieces:
        return Pieces(**{name: np.zeros(0, np.int64) for name in PIECE_COLUMNS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Units of media (see `wire.media`) that a strategy gave to ranks of their own, in the order of the pieces.

    Attributes:
        piece_U: Shape (U,), int64, index of the piece that each belongs to; ascending, all units of a piece.
        rank_U: Shape (U,), int64, the rank of the mesh that encodes it.
    """

    piece_U: Int64Array
    rank_U: Int64Array

    def __len__(self) -> int:
        return len(self.piece_U)

    def of_pieces(self, keep_N: npt.NDArray[np.bool_]) -> Units:
        """The units of the pieces that are kept, as indexes into these."""
        mine_U = keep_N[self.piece_U]
        new_N = np.cumsum(keep_N) - 1
        return Units(piece_U=new_N[self.piece_U[mine_U]], rank_U=self.rank_U[mine_U])

    @staticmethod
    def empty() -> Units:
        return Units(piece_U=np.zeros(0, np.int64), rank_U=np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """Which piece goes to which bin of one step. Bin b belongs to dp rank b // (num_bins // dp).

    Attributes:
        digest: SHA-256 (hex) of the whole step's plan; a slice keeps the digest of the whole.
        num_bins: G, microbatches of all dp ranks together.
        seq_len: C, tokens of a microbatch.
        global_valid_tokens: Loss denominator of the step over all ranks and microbatches.
        weights_S: Shape (S,), the mixture in force, fixed point with 2**30 = 1.
        source_tokens_S: Shape (S,), real tokens placed per source.
        pieces: In canonical order.
        units: Who encodes which image; empty where images go with their documents.
        is_hybrid: Whether images are encoded by ranks of their own, in the whole step, whatever slice this is: true
            wherever there are units. No part of the digest.
        masked: Samples (source, epoch, shard, block, row) whose content failed when they were made: they are served
            without loss, now and ever again. Journaled later than the plan, so no part of it or of its digest.
    """

    step: int
    digest: str = ""
    revision: int = 0
    is_final: bool = False
    num_bins: int
    seq_len: int
    dp: int
    num_tokens: int
    global_valid_tokens: int
    weights_S: Int64Array
    source_tokens_S: Int64Array
    pieces: Pieces
    units: Units = field(default_factory=Units.empty)
    is_hybrid: bool = False
    masked: tuple[MaskedSample, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_hybrid", self.is_hybrid or len(self.units) > 0)

    @property
    def bins_per_rank(self) -> int:
        return self.num_bins // self.dp

    def with_digest(self) -> StepPlan:
        """The same plan with its digest filled in."""
        return replace(self, digest=_digest(self))

    def of_ranks(self, dp_ranks: set[int], encoder_ranks: Iterable[int] = ()) -> StepPlan:
        """The part of the plan whose bins belong to `dp_ranks`, or that has a unit which `encoder_ranks` encode."""
        ranks = np.array(sorted(dp_ranks), np.int64)
        keep_N = np.isin(self.pieces.bin // self.bins_per_rank, ranks)
        if len(self.units):
            is_mine_U = np.isin(self.units.rank_U, np.array(sorted(encoder_ranks), np.int64))
            keep_N[self.units.piece_U[is_mine_U]] = True
        return self._of_pieces(keep_N)

    def of_partitions(self, partitions: Iterable[Sequence[int]]) -> StepPlan:
        """The part whose lanes belong to the named partitions: (source, k, P) owns lanes l with l mod P = k.

        A source may be named several times: a loader may own more than one of its partitions.
        """
        keep = np.zeros(len(self.pieces), bool)
        for source, k, of in partitions:
            keep |= (self.pieces.source == source) & (self.pieces.lane % of == k)
        return self._of_pieces(keep)

    def _of_pieces(self, keep_N: npt.NDArray[np.bool_]) -> StepPlan:
        return replace(self, pieces=self.pieces.take(keep_N), units=self.units.of_pieces(keep_N))


def _digest(plan: StepPlan) -> str:
    """Over the compact form: it says everything, in a tenth of the bytes."""
    compact = _compact(plan.pieces) | (_compact_units(plan.units) if len(plan.units) else {})
    head = [plan.step, plan.revision, plan.is_final, plan.num_bins, plan.seq_len, plan.dp, plan.global_valid_tokens]
    head += [len(plan.weights_S), len(compact["range_count"]), len(compact["bins"]), len(compact["cut_piece"])]
    h = hashlib.sha256(np.array(head, "<i8").tobytes())
    h.update(plan.weights_S.astype("<i8").tobytes())
    for name in sorted(compact):
        h.update(compact[name].astype("<u2" if name in _SHORT else "<i4").tobytes())
    return h.hexdigest()


def _range_starts(p: Pieces) -> npt.NDArray[np.bool_]:
    """True where a piece cannot join the range of the piece before it."""
    starts = np.ones(len(p), bool)
    if len(p) > 1:
        same = np.ones(len(p) - 1, bool)
        for column in (p.source, p.epoch, p.lane, p.shard, p.block):
            same &= column[1:] == column[:-1]
        starts[1:] = ~(same & (p.pos[1:] == p.pos[:-1] + 1))
    return starts


def _compact(p: Pieces) -> dict[str, npt.NDArray[np.generic]]:
    """Ranges of samples that follow each other, one bin a piece, and the cut pieces: columns of STEP_PLAN."""
    starts = np.flatnonzero(_range_starts(p))
    cut = np.flatnonzero(p.num_tokens != WHOLE)
    columns = {f"range_{name}": getattr(p, name)[starts] for name in _RANGE_COLUMNS}
    columns["range_count"] = np.diff(np.append(starts, len(p)))
    columns |= {"cut_piece": cut, "cut_first": p.first_token[cut], "cut_tokens": p.num_tokens[cut]}
    return columns | {"bins": p.bin.astype(np.uint16)}


def _compact_units(units: Units) -> dict[str, npt.NDArray[np.generic]]:
    """Pieces that have units, how many, and the rank of each: columns of STEP_PLAN."""
    piece_M, count_M = np.unique(units.piece_U, return_counts=True)
    return {"media_piece": piece_M, "media_units": count_M, "unit_rank": units.rank_U}


def encode_plans(plans: list[StepPlan]) -> pa.RecordBatch:
    """Encode plans (or slices of plans) as one row a step of schema STEP_PLAN."""
    rows = [
        _compact(plan.pieces)
        | _compact_units(plan.units)
        | {"weights": plan.weights_S, "source_tokens": plan.source_tokens_S}
        for plan in plans
    ]
    arrays = []
    for column in STEP_PLAN:
        if pa.types.is_list(column.type):
            arrays.append(_lists([row[column.name] for row in rows], column.type))
        else:
            arrays.append(pa.array([getattr(plan, column.name) for plan in plans], column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=STEP_PLAN)


def _lists(columns: list[npt.NDArray[np.generic]], kind: pa.ListType) -> pa.ListArray:
    """One list a row, without a look at single values."""
    offsets = np.cumsum([0, *map(len, columns)]).astype(np.int32)
    values = np.concatenate([np.zeros(0, np.int64), *columns]).astype(kind.value_type.to_pandas_dtype())
    return pa.ListArray.from_arrays(offsets, pa.array(values), type=kind)


def decode_plans(batch: pa.RecordBatch) -> list[StepPlan]:
    """Decode rows of schema STEP_PLAN.

    Raises:
        BadRequestError: The batch has another schema.
    """
    if not batch.schema.equals(STEP_PLAN):
        raise BadRequestError(f"a step plan must have the schema STEP_PLAN, got fields {batch.schema.names}")
    return [_decode_row(batch, i) for i in range(batch.num_rows)]


def _decode_row(batch: pa.RecordBatch, i: int) -> StepPlan:
    def scalar(name: str) -> object:
        return batch.column(name)[i].as_py()

    def array(name: str) -> Int64Array:
        values = batch.column(name)[i].values.to_numpy(zero_copy_only=False)
        return np.asarray(values, np.int64)

    count = array("range_count")
    num = int(count.sum())
    offset = np.arange(num) - np.repeat(np.cumsum(count) - count, count)
    columns = {n: np.repeat(array(f"range_{n}"), count) for n in _RANGE_COLUMNS}
    columns["pos"] = columns["pos"] + offset
    first, length, cut = np.zeros(num, np.int64), np.full(num, WHOLE, np.int64), array("cut_piece")
    first[cut], length[cut] = array("cut_first"), array("cut_tokens")
    pieces = Pieces(**columns, first_token=first, num_tokens=length, bin=array("bins"))
    head = (
        "step",
        "digest",
        "revision",
        "is_final",
        "is_hybrid",
        "num_bins",
        "seq_len",
        "dp",
        "num_tokens",
        "global_valid_tokens",
    )
    return StepPlan(
        **{name: scalar(name) for name in (*head, "is_hybrid")},  # type: ignore[arg-type]
        weights_S=array("weights"),
        source_tokens_S=array("source_tokens"),
        pieces=pieces,
        units=Units(piece_U=np.repeat(array("media_piece"), array("media_units")), rank_U=array("unit_rank")),
    )


def plans_to_bytes(plans: list[StepPlan]) -> bytes:
    """An Arrow IPC stream of the plans; masked samples are in the schema's metadata.

    Its buffers are compressed by zstd where they are large: below that it takes more time, and even more room.
    """
    sink = pa.BufferOutputStream()
    masked = {str(plan.step): plan.masked for plan in plans if plan.masked}
    schema = STEP_PLAN.with_metadata({_MASKED: json.dumps(masked)}) if masked else STEP_PLAN
    batch = encode_plans(plans).replace_schema_metadata(schema.metadata)
    codec = "zstd" if batch.nbytes > COMPRESSED_BYTES else None
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _with_masked(plan: StepPlan, samples: Iterable[Sequence[int]]) -> StepPlan:
    masked = tuple((source, epoch, shard, block, row) for source, epoch, shard, block, row in samples)
    return replace(plan, masked=masked) if masked else plan


def plans_from_bytes(data: bytes) -> list[StepPlan]:
    """Inverse of `plans_to_bytes`."""
    try:
        with pa.ipc.open_stream(data) as reader:
            plans = [plan for batch in reader for plan in decode_plans(batch)]
            masked = json.loads((reader.schema.metadata or {}).get(_MASKED, b"{}"))
            return [_with_masked(plan, masked.get(str(plan.step), ())) for plan in plans]
    except (pa.ArrowInvalid, ValueError) as error:
        raise BadRequestError(f"not an Arrow stream of step plans: {error}") from error
