"""What loaders delivered for a step: the facts of all pieces together, pixels and audio where they arrived.

# N = delivered pieces
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.errors import BadRequestError, InternalError
from loadmaster_flight.wire.media import Grid, MediaItem
from loadmaster_flight.wire.schemas import PIECES, MediaKind
from loadmaster_flight.wire.step_plan import StepPlan

Int64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
PLACE = ("source", "epoch", "shard", "block", "pos", "first_token")
"""What names a piece of a step, most significant first: the canonical order inside a bin."""
PAYLOADS = ("pixels", "audio")
FACTS = pa.schema([field for field in PIECES if field.name not in PAYLOADS])


class Payloads:
    """One column of bytes in as many chunks as loaders sent; reading copies nothing.

    Args:
        column: large_binary, with nulls where a piece has none.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._chunks = [_Chunk.of(chunk) for chunk in column.chunks if len(chunk)]
        self._ends = np.cumsum([len(chunk.offsets) - 1 for chunk in self._chunks])

    def __getitem__(self, row: int) -> Bytes | None:
        """The bytes of a row as a view, read only; None for null."""
        at = int(np.searchsorted(self._ends, row, side="right"))
        chunk = self._chunks[at]
        return chunk.get(row - int(self._ends[at]) + len(chunk.offsets) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """An array of large_binary by its buffers: Arrow's scalars would copy every value."""

    offsets: Int64Array
    data: Bytes
    is_valid: npt.NDArray[np.bool_]

    @staticmethod
    def of(array: pa.LargeBinaryArray) -> _Chunk:
        _, offsets, data = array.buffers()
        return _Chunk(
            offsets=np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8),
            data=np.frombuffer(data if data is not None else b"", np.uint8),
            is_valid=array.is_valid().to_numpy(zero_copy_only=False),
        )

    def get(self, row: int) -> Bytes | None:
        return self.data[self.offsets[row] : self.offsets[row + 1]] if self.is_valid[row] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceMedia:
    """Media of one piece. `units` are those of the sample's units whose pixels came along, ascending."""

    items: tuple[MediaItem, ...]
    units: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The pieces of one or more steps, in no order. `facts` has schema FACTS, N rows."""

    facts: pa.RecordBatch
    pixels: Payloads
    audio: Payloads

    @staticmethod
    def of(pieces: pa.RecordBatch | pa.Table) -> Delivery:
        """Take pieces of schema PIECES. Only their facts are copied, and only where they came in several chunks.

        Raises:
            BadRequestError: They have another schema.
        """
        if not pieces.schema.equals(PIECES):
            raise BadRequestError(f"pieces must have the schema PIECES, got fields {pieces.schema.names}")
        table = pa.Table.from_batches([pieces]) if isinstance(pieces, pa.RecordBatch) else pieces
        batches = table.select(FACTS.names).combine_chunks().to_batches()
        return Delivery(
            facts=batches[0] if batches else pa.RecordBatch.from_pylist([], schema=FACTS),
            pixels=Payloads(table.column("pixels")),
            audio=Payloads(table.column("audio")),
        )

    def numbers(self, name: str) -> Int64Array:
        """A column of whole numbers, int64 (N,)."""
        return np.asarray(self.facts.column(name).to_numpy(zero_copy_only=False), np.int64)

    def media(self, rows: Iterable[int]) -> dict[int, PieceMedia]:
        """Row -> media, of those of the given rows that have any."""
        kinds = self.facts.column("media_kind")
        if kinds.null_count == len(kinds):
            return {}
        has_N = kinds.is_valid().to_numpy(zero_copy_only=False)
        found = [int(row) for row in rows if has_N[row]]
        names = ("media_kind", "media_grid", "media_start", "media_units")
        columns = (self.facts.column(name).take(pa.array(found, pa.int64())).to_pylist() for name in names)
        return {
            row: PieceMedia(items=tuple(_item(*parts) for parts in zip(*item, strict=True)), units=tuple(units or ()))
            for row, *item, units in zip(found, *columns, strict=True)
        }


def require_size(plan: StepPlan, delivery: Delivery, row: int, data: Bytes | None, size: int, *, what: str) -> None:
    """Refuse a payload of another size than the piece's grids say. A masked piece may come without one: it is zeros.

    Raises:
        InternalError: Names step and piece.
    """
    if data is None and delivery.facts.column("is_masked")[row].as_py():
        return
    if data is None or len(data) != size:
        got = "none" if data is None else len(data)
        name = name_of(delivery.facts.column(field)[row].as_py() for field in ("bin", *PLACE))
        raise InternalError(f"step {plan.step}: {what} of the piece {name} must have {size} bytes, got {got}")


def name_of(key: Iterable[int]) -> str:
    """A piece for people, by its bin and PLACE."""
    return ", ".join(f"{name} {value}" for name, value in zip(("bin", *PLACE), key, strict=True))


def _item(kind: int, grid: list[int], start: int) -> MediaItem:
    t, h, w = grid
    shape: Grid = (t, h, w)
    return MediaItem(kind=MediaKind(kind), grid=shape, token_start=start)
