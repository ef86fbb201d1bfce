"""MDS shards of MosaicML Streaming, read where they lie; layout as its MDSWriter (format version 2) defines it.

    uint32 number of samples | uint32 offsets [number + 1] | JSON of the columns | samples
    sample: uint32 sizes of the columns without a fixed size | values, one behind the other

All integers are little endian, offsets count from the file's beginning.

# N = requested rows, S = samples of a shard
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from .blocks import Block, ContentError, FaultBlock, Projection, RowFault, as_text, heads, value_at
from .files import ObservedFile, ShardFile, read_range
from .jsonl import num_ranges
from .mds_values import decode_value

_WORD_BYTES = 4
_WORD = "<u4"
STREAMED = {"zstd": "zstd", "gz": "gzip", "bz2": "bz2", "br": "brotli"}
"""Compressions that can be read, by the extension that MDS gives them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MdsColumns:
    """Columns of a shard in the order of their values; size None where it differs from sample to sample."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Head of a shard. offsets: shape (S + 1,), int64, of samples in the file."""

    columns: MdsColumns
    offsets: npt.NDArray[np.int64]


def columns_of(config: Any) -> MdsColumns:
    """The columns that index.json, or a shard's own head, describes.

    Raises:
        ContentError: They are not described as the format says.
    """
    try:
        names, encodings, sizes = (tuple(config[f"column_{key}"]) for key in ("names", "encodings", "sizes"))
    except (KeyError, TypeError) as error:
        raise ContentError(f"no description of its columns: {error!r}") from error
    if not len(names) == len(encodings) == len(sizes):
        raise ContentError(f"{len(names)} columns, {len(encodings)} encodings, {len(sizes)} sizes")
    return MdsColumns(names=names, encodings=encodings, sizes=tuple(size or None for size in sizes))


class MdsShard:
    """Samples of one shard: block k holds those that start in its range of block_bytes; a compressed one is one block.

    The head is read once and kept. Thread-safe.
    """

    def __init__(self, file: ShardFile, block_bytes: int, projection: Projection) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._text_path = projection.text_path
        self._compression = STREAMED.get(file.uri.rpartition(".")[2])
        self._lock = threading.Lock()
        self._layout: _Layout | None = None

    def num_blocks(self) -> int:
        return 1 if self._compression else num_ranges(self._file.size_bytes, self._block_bytes)

    def read(self, block: int) -> Block:
        try:
            return self._read(block)
        except ContentError as first:
            try:
                self._read(block)
            except ContentError as second:
                if str(first) == str(second):
                    return FaultBlock(num_rows=int(block == 0), reason=f"not an MDS shard: {first}")
            raise OSError(f"block {block} differs between two reads: {first}") from first

    def _read(self, block: int) -> Block:
        if self._compression:
            data = self._decompressed()
            layout = _layout_of(data[: _head_bytes(data)], len(data))
            return self._block(layout, 0, len(layout.offsets) - 1, data)
        with self._file.open() as handle:
            layout = self._head(handle)
            bounds = [block * self._block_bytes, (block + 1) * self._block_bytes]
            first, stop = np.searchsorted(layout.offsets[:-1], bounds).tolist()
            start, end = int(layout.offsets[first]), int(layout.offsets[stop])
            return self._block(layout, first, stop, read_range(handle, start, end - start), shift=start)

    def _block(self, layout: _Layout, first: int, stop: int, data: bytes, *, shift: int = 0) -> Block:
        offsets = layout.offsets[first : stop + 1] - shift
        return MdsBlock(layout.columns, offsets, data, text_path=self._text_path)

    def _head(self, handle: Any) -> _Layout:
        with self._lock:
            if self._layout is None:
                size_bytes = self._file.size_bytes
                start = read_range(handle, 0, min(2 * _WORD_BYTES, size_bytes))
                self._layout = _layout_of(read_range(handle, 0, min(_head_bytes(start), size_bytes)), size_bytes)
            return self._layout

    def _decompressed(self) -> bytes:
        with self._file.open() as handle, ObservedFile(handle) as observed:
            try:
                stream = pa.CompressedInputStream(pa.PythonFile(observed, mode="r"), self._compression)
                return bytes(stream.read())
            except (OSError, pa.ArrowException) as error:
                if observed.io_error is not None:
                    raise observed.io_error from error
                raise ContentError(f"corrupt {self._compression}: {error}") from error


def _head_bytes(start: bytes) -> int:
    """Where the first sample starts: the first offset."""
    if len(start) < 2 * _WORD_BYTES:
        raise ContentError(f"{len(start)} bytes")
    return int(np.frombuffer(start, _WORD, 1, _WORD_BYTES)[0])


def _layout_of(head: bytes, size_bytes: int) -> _Layout:
    if len(head) < 2 * _WORD_BYTES:
        raise ContentError(f"a head of {len(head)} bytes")
    count = int(np.frombuffer(head, _WORD, 1)[0])
    config_at = _WORD_BYTES * (count + 2)
    if config_at > len(head):
        raise ContentError(f"{count} samples do not fit a head of {len(head)} bytes")
    offsets = np.frombuffer(head, _WORD, count + 1, _WORD_BYTES).astype(np.int64)
    if (np.diff(offsets) < 0).any() or int(offsets[-1]) > size_bytes:
        raise ContentError(f"its samples end at byte {int(offsets[-1])} of {size_bytes}")
    try:
        config = orjson.loads(head[config_at:])
    except orjson.JSONDecodeError as error:
        raise ContentError(f"no description of its columns: {error}") from error
    return _Layout(columns=columns_of(config), offsets=offsets)


class MdsBlock:
    """Samples of a block, decoded when a column is asked for.

    Args:
        offsets: Shape (rows + 1,), int64: where the samples are in `data`.
    """

    def __init__(
        self, columns: MdsColumns, offsets: npt.NDArray[np.int64], data: bytes, *, text_path: str | None
    ) -> None:
        self._columns = columns
        self._offsets = offsets
        self._data = data
        self._text_path = text_path
        self._places = {name: place for place, name in enumerate(columns.names)}
        self.num_rows = len(offsets) - 1
        self.size_bytes = len(data)

    def column(self, path: str, rows: npt.NDArray[np.int64]) -> list[object]:
        """Values of a column, or of what lies below a dot inside a JSON column."""
        found = next(((head, rest) for head, rest in heads(path) if head in self._places), None)
        if found is None:
            return [None] * len(rows)
        name, rest = found
        values = [self._value(row, self._places[name]) for row in rows.tolist()]
        if rest:
            return [_below(value, rest) for value in values]
        return [as_text(value) for value in values] if path == self._text_path else values

    def row(self, index: int) -> dict[str, object] | RowFault:
        """A sample by column; a pickle stays bytes."""
        row: dict[str, object] = {}
        for name, place in self._places.items():
            value = self._value(index, place, keeps_pickle=True)
            if isinstance(value, RowFault):
                return value
            row[name] = value
        return row

    def _value(self, row: int, place: int, *, keeps_pickle: bool = False) -> object:
        start, stop = int(self._offsets[row]), int(self._offsets[row + 1])
        sizes = [*self._columns.sizes]
        unknown = [i for i, size in enumerate(sizes) if size is None]
        at = start + _WORD_BYTES * len(unknown)
        if at > stop:
            return RowFault(reason=f"a sample of {stop - start} bytes has no room for the sizes of its columns")
        for i, size in zip(unknown, np.frombuffer(self._data, _WORD, len(unknown), start).tolist(), strict=True):
            sizes[i] = size
        total = at + sum(size or 0 for size in sizes)
        if total != stop:
            return RowFault(reason=f"the columns of a sample take {total - start} bytes, it has {stop - start}")
        at += sum(size or 0 for size in sizes[:place])
        data = self._data[at : at + (sizes[place] or 0)]
        encoding = self._columns.encodings[place]
        return data if keeps_pickle and encoding == "pkl" else decode_value(encoding, data, self._columns.names[place])


def _below(value: object, path: str) -> object:
    if isinstance(value, RowFault):
        return value
    return value_at(value, path) if isinstance(value, dict) else None
