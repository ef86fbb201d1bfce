"""PIECES from measured chunks: rows are found by array arithmetic, tokens are copied by runs of neighbours.

# M = chunks, N = pieces, R = rows of all chunks, T = tokens of the answer, S = loss spans
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..wire.errors import DataError
from ..wire.schemas import PIECES
from ..wire.step_plan import WHOLE, MaskedSample, Pieces
from .chunk import BoolArray, Chunk, Int32Array, Int64Array, SpanTable
from .media import CHANGED, StepMedia

MEDIA_COLUMNS = ("media_kind", "media_grid", "media_start", "media_units", "pixels", "audio")
MASKED_BEFORE = "masked when it was made before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """The chunks that hold a step's pieces.

    Attributes:
        chunks: M chunks.
        planned_M: Per chunk int64 (its rows,): tokens of each row when it was measured first, -1 where unknown.
        chunk_N: Int64 (N,), which chunk each piece is in.
        masked: Samples that failed before and are masked whatever they are now: (source, epoch, shard, block, row).
        has_tokens_N: Bool (N,), False for pieces whose pixels alone are sent; None: all have.
        media: Images, video and audio of the pieces; None where there are none.
    """

    chunks: Sequence[Chunk]
    planned_M: Sequence[Int64Array]
    chunk_N: Int64Array
    masked: Sequence[MaskedSample] = ()
    has_tokens_N: BoolArray | None = None
    media: StepMedia | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Where each piece lies in the chunks' tokens laid end to end."""

    row_R_N: Int64Array  # the piece's row among the rows of all chunks
    row_N: Int64Array
    start_N: Int64Array
    num_tokens_N: Int64Array  # as planned
    num_sent_N: Int64Array  # one more where the sample goes on; 0 where its pixels alone are sent
    is_failed_N: BoolArray
    is_masked_N: BoolArray  # failed before


def gather_pieces(step: int, pieces: Pieces, cargo: Cargo, *, source_names: Sequence[str]) -> pa.RecordBatch:
    """All pieces of one step, in their order.

    A piece whose content is not what was planned, or does not decode, keeps its length: tokens are 0 but for the
    placeholders of its media, `is_masked` is true.

    Raises:
        DataError: A whole sample cannot be read any more and its length is not known; names source, shard and row.
    """
    cut = _cut(pieces, cargo)
    _check_lengths(step, pieces, cut, source_names)
    p, num = pieces, len(pieces)
    columns: dict[str, npt.NDArray[np.generic]] = {
        "step": np.full(num, step),
        "row": cut.row_N,
        "num_tokens": cut.num_tokens_N,
        "is_masked": cut.is_failed_N,
    }
    columns |= {name: getattr(p, name) for name in ("bin", "source", "epoch", "shard", "block", "pos", "first_token")}
    arrays = {name: pa.array(_as(name, values)) for name, values in columns.items()}
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(cut.num_sent_N)])
    tokens_T = _tokens(cut, cargo)
    _put_placeholders(tokens_T, offsets, cut, cargo)
    kind = PIECES.field("tokens").type
    arrays["tokens"] = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens_T), type=kind)
    arrays["loss_spans"] = _spans(pieces, cut, cargo).to_arrow()
    arrays["reason"] = pa.array(_reasons(pieces, cut, cargo), pa.string())
    if cargo.media is not None:
        arrays |= cargo.media.columns
    else:
        arrays |= {name: pa.nulls(num, PIECES.field(name).type) for name in MEDIA_COLUMNS}
    return pa.RecordBatch.from_arrays([arrays[name] for name in PIECES.names], schema=PIECES)


def _cut(p: Pieces, cargo: Cargo) -> _Cut:
    rows_M = [chunk.num_rows for chunk in cargo.chunks]
    base_M = np.cumsum([0, *rows_M])[:-1]
    pos_M = np.array([chunk.pos for chunk in cargo.chunks], np.int64)
    row_R_N = (base_M - pos_M)[cargo.chunk_N] + p.pos
    now_N = _joined([chunk.lengths_N for chunk in cargo.chunks])[row_R_N]
    planned_N = _joined(cargo.planned_M)[row_R_N]
    planned_N = np.where(planned_N < 0, now_N, planned_N)  # whoever planned it could read it
    is_whole_N = p.num_tokens == WHOLE
    num_N = np.where(is_whole_N, planned_N, p.num_tokens)
    row_N = _joined([chunk.rows_N for chunk in cargo.chunks])[row_R_N]
    is_changed_N = (now_N < 0) | (now_N != planned_N) | (p.first_token + num_N > now_N)
    is_masked_N = _is_masked(p, row_N, cargo.masked)
    is_failed_N = is_changed_N | is_masked_N
    if cargo.media is not None:
        is_failed_N[list(cargo.media.failed)] = True
    goes_on_N = ~is_failed_N & (p.first_token + num_N < now_N)
    num_sent_N = num_N + goes_on_N
    return _Cut(
        row_R_N=row_R_N,
        row_N=row_N,
        start_N=_joined(_token_starts(cargo.chunks))[row_R_N] + p.first_token,
        num_tokens_N=num_N,
        num_sent_N=num_sent_N if cargo.has_tokens_N is None else np.where(cargo.has_tokens_N, num_sent_N, 0),
        is_failed_N=is_failed_N,
        is_masked_N=is_masked_N,
    )


def _is_masked(p: Pieces, row_N: Int64Array, masked: Sequence[MaskedSample]) -> BoolArray:
    """Where a piece is of a masked sample, bool (N,)."""
    is_masked_N = np.zeros(len(p), bool)
    for source, epoch, shard, block, row in masked:
        is_here_N = (p.source == source) & (p.epoch == epoch) & (p.shard == shard) & (p.block == block)
        is_masked_N |= is_here_N & (row_N == row)
    return is_masked_N


def _token_starts(chunks: Sequence[Chunk]) -> list[Int64Array]:
    base_M = np.cumsum([0, *(len(chunk.tokens_T) for chunk in chunks)])[:-1]
    return [chunk.offsets[:-1] + base for chunk, base in zip(chunks, base_M, strict=True)]


def _check_lengths(step: int, p: Pieces, cut: _Cut, source_names: Sequence[str]) -> None:
    lost = np.flatnonzero(cut.num_tokens_N < 0)
    if len(lost):
        i = int(lost[0])
        where = f"source {source_names[int(p.source[i])]!r} shard {p.shard[i]} block {p.block[i]} row {cut.row_N[i]}"
        raise DataError(f"step {step}: {where} was planned whole and cannot be read now, so its length is not known")


def _tokens(cut: _Cut, cargo: Cargo) -> Int32Array:
    """Tokens of all pieces, int32 (T,): one copy a run of pieces that are neighbours in a chunk."""
    num = len(cut.start_N)
    if not num:
        return np.zeros(0, np.int32)
    stop_N, chunk_N, failed_N = cut.start_N + cut.num_sent_N, cargo.chunk_N, cut.is_failed_N
    begins = np.ones(num, bool)
    begins[1:] = (cut.start_N[1:] != stop_N[:-1]) | (chunk_N[1:] != chunk_N[:-1]) | failed_N[1:] | failed_N[:-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], num) - 1
    base_M = np.cumsum([0, *(len(chunk.tokens_T) for chunk in cargo.chunks)])[:-1]
    chunk_of_run = chunk_N[first]
    start, stop = cut.start_N[first] - base_M[chunk_of_run], stop_N[last] - base_M[chunk_of_run]
    runs = zip(chunk_of_run.tolist(), start.tolist(), stop.tolist(), failed_N[first].tolist(), strict=True)
    chunks = cargo.chunks
    return np.concatenate([np.zeros(b - a, np.int32) if bad else chunks[m].tokens_T[a:b] for m, a, b, bad in runs])


def _put_placeholders(tokens_T: Int32Array, offsets: Int64Array, cut: _Cut, cargo: Cargo) -> None:
    """A masked document keeps the places of its media, or they would be more than its places."""
    if cargo.media is None:
        return
    for piece, places in cargo.media.placeholders.items():
        if cut.is_failed_N[piece] and cut.num_sent_N[piece]:
            document_n = tokens_T[offsets[piece] : offsets[piece + 1]]
            for start, num, token in places:
                document_n[start : start + num] = token


def _reasons(p: Pieces, cut: _Cut, cargo: Cargo) -> list[str | None]:
    """Why each masked piece is masked."""
    reasons: list[str | None] = [None] * len(p)
    for piece in np.flatnonzero(cut.is_failed_N).tolist():
        reasons[piece] = _reason(piece, p, cut, cargo)
    return reasons


def _reason(piece: int, p: Pieces, cut: _Cut, cargo: Cargo) -> str:
    if cut.is_masked_N[piece]:
        return MASKED_BEFORE
    chunk = cargo.chunks[cargo.chunk_N[piece]]
    now = chunk.reasons[int(p.pos[piece]) - chunk.pos] if chunk.reasons is not None else None
    if now is not None:
        return f"{CHANGED}: {now}"
    return CHANGED if cargo.media is None else cargo.media.failed.get(piece, CHANGED)


def _spans(p: Pieces, cut: _Cut, cargo: Cargo) -> SpanTable:
    """Loss spans cut to the pieces and counted from their first token; a failed piece has none (no loss)."""
    if not cut.is_failed_N.any() and not any(chunk.spans.is_given_N.any() for chunk in cargo.chunks):
        return SpanTable.from_lists(None, len(p))
    table = SpanTable.concat([chunk.spans for chunk in cargo.chunks])
    count_N = np.where(cut.is_failed_N, 0, np.diff(table.offsets)[cut.row_R_N] // 2)
    piece_S = np.repeat(np.arange(len(p)), count_N)
    nth_S = np.arange(len(piece_S)) - np.repeat(np.cumsum(count_N) - count_N, count_N)
    at_S = table.offsets[cut.row_R_N][piece_S] + 2 * nth_S
    # The first token of a piece is the target of a label before it: a piece's own targets are 1 to num_sent - 1.
    first_S, sent_S = p.first_token[piece_S], cut.num_sent_N[piece_S]
    start_S = np.maximum(table.values[at_S] - first_S, 1)
    stop_S = np.minimum(table.values[at_S + 1] - first_S, sent_S)
    keep_S = start_S < stop_S
    kept_N = np.bincount(piece_S[keep_S], minlength=len(p))
    values = np.stack([start_S[keep_S], stop_S[keep_S]], axis=1).reshape(-1).astype(np.int32)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(2 * kept_N)])
    return SpanTable(is_given_N=table.is_given_N[cut.row_R_N] | cut.is_failed_N, offsets=offsets, values=values)


def _joined(arrays: Sequence[Int64Array]) -> Int64Array:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _as(name: str, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    kind: npt.DTypeLike = PIECES.field(name).type.to_pandas_dtype()
    return values.astype(kind)
