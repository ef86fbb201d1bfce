"""A source that is open: its reader and transform, and how rows of an order become chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..sources.blocks import EndOfShardError
from ..sources.cache import BlockCache
from ..sources.inventory import check_unchanged
from ..sources.lanes import LanePath
from ..sources.media_files import CACHE_BYTES, MediaFiles
from ..sources.metering import ReadMeter
from ..sources.order import row_order
from ..sources.reader import SourceReader
from ..spec.manifest import SourceManifest
from ..spec.run import RunSpec
from ..transforms.build import build_transform
from ..transforms.media import NO_ACCESS, MediaAccess, MediaRule
from ..transforms.sample import MediaBuffers, SampleMedia
from ..wire.errors import BadRequestError, DataError, SourceError, UnavailableError
from .chunk import CHUNK_BYTES, CHUNK_ROWS, Chunk, Int64Array, Place, chunk_of
from .crashes import CrashRecord
from .shelf import BlockShelf, BlockSize, ShelfKey, ShelvedBlock
from .watched import MediaWatch

if TYPE_CHECKING:
    from ..transforms.thumbnail import Picture


class OpenedSource:
    """One source of a run, open. For any number of threads.

    Args:
        run: The frozen spec.
        manifest: The frozen source.
        shelf: Keeps blocks for all sources of the run.
        cache: Local copies of blocks that are slow to reach.
        again: Keeps blocks that are read once more for their media; None: `shelf` does. Lanes run far ahead of what is
            decoded, so both ends of that stretch need their blocks at once.
        crashes: Notes which media are open; None: nobody does.

    Raises:
        SourceError: A shard is not what it was when the run was created, or the transform is not.
    """

    def __init__(
        self,
        run: RunSpec,
        manifest: SourceManifest,
        shelf: BlockShelf,
        cache: BlockCache | None,
        *,
        again: BlockShelf | None = None,
        crashes: CrashRecord | None = None,
    ) -> None:
        spec = run.sources[manifest.name]
        check_unchanged(manifest, spec)
        self.manifest = manifest
        self.transform = build_transform(run, manifest.name)
        if self.transform.fingerprint != manifest.fingerprint:
            raise SourceError(
                f"source {manifest.name!r}: transform or tokenizer changed since the run was created: fingerprint must "
                f"be {manifest.fingerprint[:16]}, got {self.transform.fingerprint[:16]}"
            )
        self._seed, self._shelf, self._again = run.seed, shelf, again or shelf
        shelf.reserve(manifest.ordinal, manifest.lanes)
        self._reader = SourceReader(manifest, spec, cache=cache)
        num_media = sum(source.transform.has_media for source in run.sources.values())
        cache_bytes = min(CACHE_BYTES, run.budgets.shuffle_bytes // max(1, num_media))
        self._files = MediaFiles(manifest, spec, cache_bytes=cache_bytes)
        self._watch = MediaWatch(run, manifest.name, crashes)

    def lane(self, epoch: int, cursor: Sequence[int]) -> LanePath:
        """The path along one lane from a cursor [lane, unit_index, block_index, next_pos] on.

        Raises:
            BadRequestError: It is no such cursor of this source.
        """
        if len(cursor) != 4 or min(cursor) < 0 or cursor[0] >= self.manifest.lanes:
            raise BadRequestError(
                f"a cursor of source {self.manifest.name!r} must be [lane, unit_index, block_index, next_pos], lane "
                f"in [0, {self.manifest.lanes}), got {list(cursor)}"
            )
        return LanePath(self._reader, self.manifest, self._seed, epoch, cursor, num_rows_of=self._num_rows)

    def rows_per_chunk(self, place: Place) -> int:
        """Rows of a chunk at most: where rows are large, CHUNK_BYTES of the block at its mean size of a row."""
        size = self._shelf.size_of(self._key(place.shard, place.block))
        if size is None:
            return CHUNK_ROWS
        return min(CHUNK_ROWS, max(1, CHUNK_BYTES * size.num_rows // max(1, size.size_bytes)))

    def make(self, place: Place, start: int, stop: int, *, is_again: bool) -> Chunk:
        """Read and measure positions [start, stop) of a place: always the same bytes.

        Args:
            is_again: They were made before; the lane has gone on since.

        Raises:
            DataError: The block has no such rows (any more).
            UnavailableError: The bytes do not arrive, or the transform's own input does not.
        """
        try:
            shelved = self._shelved(place.shard, place.block, is_passed=is_again)
        except EndOfShardError as error:
            raise self._missing(place, start, 0) from error
        rows_N = self._order(shelved, place)[start:stop].copy()  # a view would keep the whole block's order
        if len(rows_N) != stop - start:
            raise self._missing(place, stop - 1, shelved.data.num_rows)
        try:
            measured = self.transform.measure(shelved.data, rows_N, self._access(place.shard, place.block))
        except OSError as error:  # a user function's own input or output: nothing is said about any row
            where = f"source {self.manifest.name!r} shard {place.shard} block {place.block} pos {start} to {stop}"
            raise UnavailableError(f"{where}: the transform failed: {error}") from error
        if not is_again:
            self._shelf.take(self._key(place.shard, place.block), start, stop)
        return chunk_of(measured, pos=start, rows_N=rows_N)

    def order(self, place: Place) -> Int64Array:
        """The row at each position of a block; without a read where the block is kept."""
        return self._order(self._shelved(place.shard, place.block, is_passed=True), place)

    def fill(self, shard: int, block: int, row: int, media: SampleMedia, out: MediaBuffers) -> str | None:
        """Decode media of a row; see `Transform.fill`."""
        key = self._key(shard, block)
        shelved = self._shelf.peek(key)
        if shelved is None:
            shelved = self._again.get(key, lambda: self._reader.read_block(shard, block), is_passed=True)
        return self.transform.fill(shelved.data, row, media, out, self._access(shard, block))

    def thumbnails(self, place: Place, row: int, limit: int) -> tuple[int, list[Picture]]:
        """How many images a row has, and small JPEG files of the first ones."""
        block = self._shelved(place.shard, place.block, is_passed=True).data
        return self.transform.thumbnails(block, row, self._access(place.shard, place.block), limit)

    @property
    def meter(self) -> ReadMeter:
        """How the source is read."""
        return self._reader.meter

    @property
    def patch_bytes(self) -> int:
        """Bytes of one patch."""
        return self._rule.patch_bytes

    def audio_bytes(self, media: SampleMedia) -> int:
        """Bytes of all audio of a row."""
        return self._rule.audio_bytes(media.items)

    def placeholders(self, media: SampleMedia) -> list[tuple[int, int, int]]:
        """First token, number of tokens and id of each item's placeholders."""
        rule = self._rule
        return [
            (item.token_start, rule.num_tokens(item.kind, item.grid), rule.tokens[item.kind].placeholder)
            for item in media.items
        ]

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        self._reader.close()
        self._files.close()

    def _access(self, shard: int, block: int) -> MediaAccess:
        if self.transform.media is None:
            return NO_ACCESS
        return self.transform.media.access(self._files, shard, self._watch.of_block(shard, block))

    @property
    def _rule(self) -> MediaRule:
        assert self.transform.media is not None, "asked of rows that have media"
        return self.transform.media

    def _key(self, shard: int, block: int) -> ShelfKey:
        return ShelfKey(self.manifest.ordinal, shard, block)

    def _num_rows(self, shard: int, block: int) -> int:
        """Rows of a block, without reading it again where it was read before."""
        size: BlockSize | None = self._shelf.size_of(self._key(shard, block))
        return size.num_rows if size is not None else self._shelved(shard, block).data.num_rows

    def _shelved(self, shard: int, block: int, *, is_passed: bool = False) -> ShelvedBlock:
        key = self._key(shard, block)
        return self._shelf.get(key, lambda: self._reader.read_block(shard, block), is_passed=is_passed)

    def _order(self, shelved: ShelvedBlock, place: Place) -> Int64Array:
        at = (place.epoch, place.shard, place.block)
        return shelved.order(place.epoch, lambda: row_order(self.manifest, self._seed, *at, shelved.data.num_rows))

    def _missing(self, place: Place, pos: int, num_rows: int) -> DataError:
        shard = self.manifest.shards[place.shard].uri
        where = f"source {self.manifest.name!r} shard {place.shard} ({shard}) block {place.block}"
        return DataError(f"{where}: pos must be in [0, {num_rows}), got {pos}: the file is not what was measured")
