"""A source that is open: its reader and transform, and how rows of an order become chunks."""

from __future__ import annotations

from collections.abc import Sequence

from ..sources.blocks import Block, EndOfShardError
from ..sources.cache import BlockCache
from ..sources.inventory import check_unchanged
from ..sources.lanes import LaneReader
from ..sources.order import row_order
from ..sources.reader import SourceReader
from ..spec.manifest import SourceManifest
from ..spec.run import RunSpec
from ..transforms.build import build_transform
from ..wire.errors import BadRequestError, DataError, SourceError, UnavailableError
from .chunk import Chunk, Int64Array, Place, chunk_of
from .shelf import BlockShelf, ShelfKey, ShelvedBlock


class OpenedSource:
    """One source of a run, open. For any number of threads.

    Args:
        run: The frozen spec.
        manifest: The frozen source.
        shelf: Keeps blocks for all sources of the run.
        cache: Local copies of blocks that are slow to reach.

    Raises:
        SourceError: A shard is not what it was when the run was created, or the transform is not.
    """

    def __init__(self, run: RunSpec, manifest: SourceManifest, shelf: BlockShelf, cache: BlockCache | None) -> None:
        spec = run.sources[manifest.name]
        check_unchanged(manifest, spec)
        self.manifest = manifest
        self.transform = build_transform(run, manifest.name)
        if self.transform.fingerprint != manifest.fingerprint:
            raise SourceError(
                f"source {manifest.name!r}: transform or tokenizer changed since the run was created: fingerprint must "
                f"be {manifest.fingerprint[:16]}, got {self.transform.fingerprint[:16]}"
            )
        self._seed, self._shelf = run.seed, shelf
        self._reader = SourceReader(manifest, spec, cache=cache)

    def lane(self, epoch: int, cursor: Sequence[int]) -> LaneReader:
        """A reader of one lane's rows from a cursor [lane, unit_index, block_index, next_pos] on.

        Raises:
            BadRequestError: It is no such cursor of this source.
        """
        if len(cursor) != 4 or min(cursor) < 0 or cursor[0] >= self.manifest.lanes:
            raise BadRequestError(
                f"a cursor of source {self.manifest.name!r} must be [lane, unit_index, block_index, next_pos], lane "
                f"in [0, {self.manifest.lanes}), got {list(cursor)}"
            )
        at = _Standing(self, epoch)
        return LaneReader(
            self._reader, self.manifest, self._seed, epoch, cursor, read_block=at.read_block, order_of=at.order_of
        )

    def make(self, place: Place, start: int, stop: int) -> Chunk:
        """Read and measure positions [start, stop) of a place: always the same bytes.

        Raises:
            DataError: The block has no such rows (any more).
            UnavailableError: The bytes do not arrive, or the transform's own input does not.
        """
        try:
            shelved = self.shelved(place.shard, place.block)
        except EndOfShardError as error:
            raise self._missing(place, start, 0) from error
        rows_N = self.order(shelved, place)[start:stop].copy()  # a view would keep the whole block's order
        if len(rows_N) != stop - start:
            raise self._missing(place, stop - 1, shelved.data.num_rows)
        try:
            measured = self.transform.measure(shelved.data, rows_N)
        except OSError as error:  # a user function's own input or output: nothing is said about any row
            where = f"source {self.manifest.name!r} shard {place.shard} block {place.block} pos {start} to {stop}"
            raise UnavailableError(f"{where}: the transform failed: {error}") from error
        return chunk_of(measured, pos=start, rows_N=rows_N)

    def shelved(self, shard: int, block: int) -> ShelvedBlock:
        """A block, from the shelf where it is there.

        Raises:
            EndOfShardError: The shard has no such block.
        """
        key = ShelfKey(self.manifest.ordinal, shard, block)
        return self._shelf.get(key, lambda: self._reader.read_block(shard, block))

    def order(self, shelved: ShelvedBlock, place: Place) -> Int64Array:
        """pos -> row of a block, kept with it for the epoch used last."""
        order_N = shelved.orders.get(place.epoch)
        if order_N is None:
            num_rows = shelved.data.num_rows
            order_N = row_order(self.manifest, self._seed, place.epoch, place.shard, place.block, num_rows)
            shelved.orders = {place.epoch: order_N}
        return order_N

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        self._reader.close()

    def _missing(self, place: Place, pos: int, num_rows: int) -> DataError:
        shard = self.manifest.shards[place.shard].uri
        where = f"source {self.manifest.name!r} shard {place.shard} ({shard}) block {place.block}"
        return DataError(f"{where}: pos must be in [0, {num_rows}), got {pos}: the file is not what was measured")


class _Standing:
    """The block that a lane stands in: held, so that a shelf too small for all lanes does not read it twice."""

    def __init__(self, opened: OpenedSource, epoch: int) -> None:
        self._opened, self._epoch = opened, epoch
        self._here: ShelvedBlock | None = None

    def read_block(self, shard: int, block: int) -> Block:
        self._here = self._opened.shelved(shard, block)
        return self._here.data

    def order_of(self, shard: int, block: int, num_rows: int) -> Int64Array:
        assert self._here is not None, "a block is read before its order is asked for"
        place = Place(self._opened.manifest.ordinal, self._epoch, shard, block)
        return self._opened.order(self._here, place)
