"""Media of the pieces of a step: decoded on all cores, straight into the buffers of the answer.

# N = pieces, M = chunks, U = units of the plan, K = units of one piece that are wanted, B = bytes of all pieces
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from ..transforms.sample import MediaBuffers, SampleMedia, UInt8Array
from ..wire.errors import DataError, UnavailableError
from ..wire.schemas import PIECES, Verdict
from ..wire.step_plan import StepPlan
from .chunk import BoolArray, Chunk, ChunkMedia, Int64Array
from .decoded import DecodedKey, DecodedSample, DecodedSamples
from .opened import OpenedSource

CHANGED = "its content is not what was measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of a plan's pieces is wanted.

    Attributes:
        has_tokens_N: Bool (N,): the piece's document is built where it is asked for; else its pixels alone are wanted.
        is_mine_U: Bool (U,): of the plan's units, those whose pixels are wanted; None: images travel with documents.
    """

    has_tokens_N: BoolArray
    is_mine_U: BoolArray | None

    @staticmethod
    def of_plan(
        plan: StepPlan, dp_ranks: Collection[int] | None = None, encoder_ranks: Collection[int] | None = None
    ) -> Wanted:
        """What some dp ranks and some encoder ranks need; None stands for all of them."""
        all_N, units = np.ones(len(plan.pieces), bool), plan.units
        if not len(units):
            return Wanted(has_tokens_N=all_N, is_mine_U=None)
        dp_N = plan.pieces.bin // plan.bins_per_rank
        return Wanted(
            has_tokens_N=all_N if dp_ranks is None else np.isin(dp_N, sorted(dp_ranks)),
            is_mine_U=np.isin(units.rank_U, units.rank_U if encoder_ranks is None else sorted(encoder_ranks)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMedia:
    """Media of a step's pieces.

    Attributes:
        columns: media_kind, media_grid, media_start, media_units, pixels and audio of PIECES.
        failed: Piece -> why its content cannot be used.
        placeholders: Piece -> (first token, number of tokens, id) of each item: what stays in a masked document.
    """

    columns: dict[str, pa.Array]
    failed: dict[int, str]
    placeholders: dict[int, list[tuple[int, int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PieceMedia:
    """The media of one piece, as measured first.

    Attributes:
        units_K: Units of the sample whose pixels are wanted, ascending.
        has_audio: Its audio is wanted.
        row: In its block.
        is_good: It may be decoded: it is what it was, and was not masked before.
    """

    key: DecodedKey
    opened: OpenedSource
    media: SampleMedia
    units_K: Int64Array
    has_audio: bool
    row: int
    is_good: bool

    @property
    def pixel_bytes(self) -> int:
        num_patches: int = sum(self.media.patches[unit] for unit in self.units_K.tolist())
        return num_patches * self.opened.patch_bytes

    @property
    def audio_bytes(self) -> int:
        return self.opened.audio_bytes(self.media) if self.has_audio else 0

    def fill(self, units_K: Int64Array, pixels: UInt8Array, audio: UInt8Array) -> str | None:
        """Decode some units, and audio where its buffer is not empty."""
        _, _, shard, block, _ = self.key
        out = MediaBuffers(units_K=units_K, pixels=pixels, audio=audio)
        return self.opened.fill(shard, block, self.row, self.media, out)

    def decode_all(self) -> DecodedSample:
        """Decode everything, for whoever asks for a part of it."""
        pixels = np.empty(self.opened.patch_bytes * sum(self.media.patches), np.uint8)
        audio = np.empty(self.opened.audio_bytes(self.media), np.uint8)
        reason = self.fill(np.arange(len(self.media.patches)), pixels, audio)
        return DecodedSample(reason=reason, pixels=pixels, audio=audio)


class MediaLoader:
    """Decodes media of steps. For any number of threads.

    Args:
        source_of: Opens a source by its ordinal.
        submit: Runs a call on a worker.
        budget_bytes: Decoded samples kept for constructors that ask for other parts of them.
    """

    def __init__(
        self,
        *,
        source_of: Callable[[int], OpenedSource],
        submit: Callable[[Callable[[], str | None]], Future[str | None]],
        budget_bytes: int,
    ) -> None:
        self._source_of, self._submit = source_of, submit
        self.decoded = DecodedSamples(budget_bytes)

    def load(
        self,
        plan: StepPlan,
        wanted: Wanted,
        chunks: Sequence[Chunk],
        planned_M: Sequence[ChunkMedia | None],
        chunk_N: Int64Array,
    ) -> StepMedia | None:
        """Decode what is wanted of a step; None where no piece has media.

        Args:
            plan: The step.
            wanted: Of its pieces.
            chunks: That hold them.
            planned_M: Per chunk the media of its rows as they were measured first.
            chunk_N: Int64 (N,), which chunk each piece is in.

        Raises:
            DataError: A piece has other units than the plan says.
            UnavailableError: Storage failed.
        """
        found = self._find(plan, wanted, chunks, planned_M, chunk_N)
        if not found:
            return None
        num, is_shared = len(plan.pieces), wanted.is_mine_U is not None
        pixels = _BinaryColumn(num, {piece: each.pixel_bytes for piece, each in found.items()})
        audio = _BinaryColumn(num, {piece: each.audio_bytes for piece, each in found.items()})
        failed = self._decode(found, pixels, audio, is_shared=is_shared)
        columns = _columns(num, found) | {"pixels": pixels.to_arrow(), "audio": audio.to_arrow()}
        placeholders = {piece: each.opened.placeholders(each.media) for piece, each in found.items()}
        return StepMedia(columns=columns, failed=failed, placeholders=placeholders)

    def release(self, plan: StepPlan) -> None:
        """Let go of what is kept of a step that every rank has."""
        if len(plan.units):
            p = plan.pieces
            columns = (p.source, p.epoch, p.shard, p.block, p.pos)
            self.decoded.drop(DecodedKey(*place) for place in np.stack(columns, axis=1).tolist())

    def _find(
        self,
        plan: StepPlan,
        wanted: Wanted,
        chunks: Sequence[Chunk],
        planned_M: Sequence[ChunkMedia | None],
        chunk_N: Int64Array,
    ) -> dict[int, _PieceMedia]:
        """The pieces that have media."""
        has_media_M = [chunk.media is not None or planned_M[m] is not None for m, chunk in enumerate(chunks)]
        pieces, masked, found = plan.pieces, frozenset(plan.masked), {}
        for piece in np.flatnonzero(np.array(has_media_M, bool)[chunk_N]).tolist():
            chunk, planned = chunks[chunk_N[piece]], planned_M[chunk_N[piece]]
            place = int(pieces.pos[piece]) - chunk.pos
            now = None if chunk.media is None else chunk.media[place]
            media = now if planned is None else planned[place] or now
            if media is None:
                continue
            columns = (pieces.source, pieces.epoch, pieces.shard, pieces.block, pieces.pos)
            key, row = DecodedKey(*(int(column[piece]) for column in columns)), int(chunk.rows_N[place])
            is_same = chunk.verdict_N[place] == Verdict.OK and now == media
            found[piece] = _PieceMedia(
                key=key,
                opened=self._source_of(key.source),
                media=media,
                units_K=_units(plan, wanted, piece, media),
                has_audio=bool(wanted.has_tokens_N[piece]),
                row=row,
                is_good=is_same and (*key[:4], row) not in masked,
            )
        return found

    def _decode(
        self, found: Mapping[int, _PieceMedia], pixels: _BinaryColumn, audio: _BinaryColumn, *, is_shared: bool
    ) -> dict[int, str]:
        """Fill the columns: piece -> why it failed. Block by block, as pieces are, so that each is read once."""
        jobs: dict[int, Future[str | None]] = {}
        for piece, each in found.items():
            outs = (pixels.part(piece), audio.part(piece))
            if not each.is_good:
                for out in outs:
                    out[:] = 0
            elif is_shared:
                jobs[piece] = self._submit(partial(self._share, each, *outs))
            else:
                jobs[piece] = self._submit(partial(each.fill, each.units_K, *outs))
        wait(jobs.values())  # all of them: nobody may write to a buffer that is let go
        if any(job.cancelled() for job in jobs.values()):
            raise UnavailableError("the loader is stopping")
        reasons = {piece: job.result() for piece, job in jobs.items()}
        failed = {piece: reason for piece, reason in reasons.items() if reason is not None}
        return failed | {piece: CHANGED for piece, each in found.items() if not each.is_good}

    def _share(self, each: _PieceMedia, pixels: UInt8Array, audio: UInt8Array) -> str | None:
        sample = self.decoded.get(each.key, each.decode_all)
        edges = np.cumsum([0, *each.media.patches]) * each.opened.patch_bytes
        at = 0
        for unit in each.units_K.tolist():
            size_bytes = int(edges[unit + 1] - edges[unit])
            pixels[at : at + size_bytes] = sample.pixels[edges[unit] : edges[unit + 1]]
            at += size_bytes
        if each.has_audio:
            audio[:] = sample.audio
        return sample.reason


class _BinaryColumn:
    """A large_binary column whose values are written in place: null but for some pieces of known sizes."""

    def __init__(self, num: int, size_of: Mapping[int, int]) -> None:
        sizes_N, self._is_valid_N = np.zeros(num, np.int64), np.zeros(num, bool)
        sizes_N[list(size_of)] = list(size_of.values())
        self._is_valid_N[list(size_of)] = True
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes_N)])
        self._data = pa.allocate_buffer(int(self._offsets[-1]))
        self._bytes_B = np.frombuffer(self._data, np.uint8)

    def part(self, piece: int) -> UInt8Array:
        """The bytes of one piece: a view."""
        return self._bytes_B[self._offsets[piece] : self._offsets[piece + 1]]

    def to_arrow(self) -> pa.Array:
        validity, offsets = pa.array(self._is_valid_N).buffers()[1], pa.py_buffer(self._offsets)
        return pa.Array.from_buffers(pa.large_binary(), len(self._is_valid_N), [validity, offsets, self._data])


def _units(plan: StepPlan, wanted: Wanted, piece: int, media: SampleMedia) -> Int64Array:
    if wanted.is_mine_U is None:
        return np.arange(len(media.patches))
    first, last = np.searchsorted(plan.units.piece_U, [piece, piece + 1])
    if last - first != len(media.patches):
        rule = f"the plan gives ranks to {last - first} units of it, and it has {len(media.patches)}"
        raise DataError(f"step {plan.step}: piece {piece} of source {plan.pieces.source[piece]}: {rule}")
    return np.flatnonzero(wanted.is_mine_U[first:last])


def _columns(num: int, found: Mapping[int, _PieceMedia]) -> dict[str, pa.Array]:
    def lists(name: str, of: Callable[[_PieceMedia], Sequence[object]]) -> pa.Array:
        rows = [of(found[piece]) if piece in found else None for piece in range(num)]
        return pa.array(rows, PIECES.field(name).type)

    return {
        "media_kind": lists("media_kind", lambda each: [int(item.kind) for item in each.media.items]),
        "media_grid": lists("media_grid", lambda each: [list(item.grid) for item in each.media.items]),
        "media_start": lists("media_start", lambda each: [item.token_start for item in each.media.items]),
        "media_units": lists("media_units", lambda each: each.units_K.tolist()),
    }
