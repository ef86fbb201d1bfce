"""Reading the blocks of a frozen source."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

from ..spec.manifest import SourceManifest
from ..spec.source import SourceSpec
from ..wire.errors import LoadmasterError
from .attempts import Patience
from .blocks import Block, EndOfShardError
from .cache import BlockCache
from .files import FileStore, ShardFile
from .formats import Shard, open_shard
from .metering import ReadMeter
from .order import Unit, lane_units

T = TypeVar("T")
_KEPT_EPOCHS = 2
_SPARE_SHARDS = 8


class SourceReader:
    """Blocks of a source by (shard, block). Thread-safe; `close` ends waits, and may be called twice.

    Keeps footers and streams of the shards used last (a few more than there are lanes), never blocks.

    Args:
        manifest: The frozen source.
        spec: Its spec: the columns that the transform needs, and the storage options.
        cache: Local cache for compressed files; None does without.
        patience: How long I/O errors are borne.

    Attributes:
        meter: Counts and times what is read.
    """

    def __init__(
        self,
        manifest: SourceManifest,
        spec: SourceSpec,
        *,
        cache: BlockCache | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._manifest = manifest
        self._spec = spec
        self._cache = cache
        self._patience = patience or Patience()
        self.meter = ReadMeter()
        self._store = FileStore(spec.storage_options, source=manifest.name)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._shards: OrderedDict[int, Shard] = OrderedDict()
        self._lanes: OrderedDict[tuple[int, int], list[list[Unit]]] = OrderedDict()

    def __enter__(self) -> SourceReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def num_blocks(self, shard: int) -> int | None:
        """Blocks of a shard; None while only reading to its end can tell.

        Raises:
            UnavailableError: The shard cannot be reached; names source and shard.
        """
        opened = self._shard(shard)
        return self._call(shard, opened.num_blocks)

    def read_block(self, shard: int, block: int) -> Block:
        """One block, decoded as far as the transform needs it. Content that cannot be read becomes `RowFault` rows.

        Raises:
            EndOfShardError: The shard has no such block.
            SourceError: The file is not the one that was frozen; names it.
            UnavailableError: The bytes do not arrive; names source and shard.
        """
        opened, start_s = self._shard(shard), time.perf_counter()
        found = self._call(shard, lambda: _read(opened, block))
        self.meter.read(time.perf_counter() - start_s, found.size_bytes)
        return found

    def blocks(self, shard: int) -> Iterator[Block]:
        """All blocks of a shard, in file order; raises what `num_blocks` and `read_block` raise."""
        block = 0
        while (num_blocks := self.num_blocks(shard)) is None or block < num_blocks:
            try:
                yield self.read_block(shard, block)
            except EndOfShardError:
                return
            block += 1

    def lane_units(self, seed: int, epoch: int) -> list[list[Unit]]:
        """`order.lane_units` of this source, kept for the epochs used last."""
        with self._lock:
            lanes = self._lanes.pop((seed, epoch), None)
            if lanes is None:
                lanes = lane_units(self._manifest, seed, epoch)
            self._lanes[seed, epoch] = lanes
            while len(self._lanes) > _KEPT_EPOCHS:
                self._lanes.popitem(last=False)
            return lanes

    def close(self) -> None:
        """Let go of files; waits for lost storage end with UnavailableError."""
        self._stopped.set()
        with self._lock:
            self._shards.clear()

    def _shard(self, index: int) -> Shard:
        with self._lock:
            shard = self._shards.pop(index, None) or self._open(index)
            self._shards[index] = shard
            while len(self._shards) > self._manifest.lanes + _SPARE_SHARDS:
                self._shards.popitem(last=False)
            return shard

    def _call(self, shard: int, read: Callable[[], T]) -> T:
        try:
            return self._patience.call(read, place=self._place(shard), stopped=self._stopped, on_retry=self.meter.retry)
        except LoadmasterError as error:
            if not self._stopped.is_set():
                self.meter.fail(error)
            raise

    def _open(self, index: int) -> Shard:
        info = self._manifest.shards[index]
        file = ShardFile(
            store=self._store,
            source=self._manifest.name,
            uri=info.uri,
            size_bytes=info.size_bytes,
            etag=info.etag,
        )
        return open_shard(self._manifest, info, file, self._spec, self._cache)

    def _place(self, shard: int) -> str:
        return f"source {self._manifest.name}, shard {shard} ({self._manifest.shards[shard].uri})"


def _read(opened: Shard, block: int) -> Block:
    num_blocks = opened.num_blocks()
    if not 0 <= block < (block + 1 if num_blocks is None else num_blocks):
        raise EndOfShardError
    return opened.read(block)
