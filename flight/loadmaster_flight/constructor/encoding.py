"""Hybrid steps: which rank encodes which unit of which image, and the pixels that are sent there for it.

# U = units of the plan's slice, M = microbatches of a rank
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.errors import InternalError
from loadmaster_flight.wire.media import Grid
from loadmaster_flight.wire.modalities import VisionFields
from loadmaster_flight.wire.schemas import NO_DP
from loadmaster_flight.wire.step_plan import StepPlan

from .columns import Load, lists_column, payload_column
from .delivery import PLACE, Bytes, Delivery, name_of, require_size
from .images import Album, units_of

Int64Array = npt.NDArray[np.int64]
ENCODER_FIELDS = ("pixel_values", "encoder_grid_thw", "encoder_dp")
"""What a rank gets for what it encodes, on whatever stage it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stock:
    """What was delivered of one piece: the grids of its units, and the pixels of those that are encoded here."""

    grids: list[Grid]
    pixels: dict[int, Bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """One unit to encode: its grid, the dp rank that gets its embeddings, and its pixels (None: zeros)."""

    grid: Grid
    dp_rank: int
    pixels: Bytes | None


class StepEncoding:
    """The units of a step and where their pixels are. Made once a step, for all its ranks. Used by one thread.

    Args:
        plan: The step's plan, or a slice of it.
        delivery: What loaders sent.
        vision: How pixels are laid out.
    """

    def __init__(self, plan: StepPlan, delivery: Delivery, vision: VisionFields) -> None:
        self._plan, self._delivery, self._vision = plan, delivery, vision
        self._row_of = _rows_of(plan, delivery)
        self._media = delivery.media(self._row_of.values())
        self._first_U = np.searchsorted(plan.units.piece_U, np.arange(len(plan.pieces) + 1))
        self._stocks: dict[int, _Stock] = {}

    def unit_ranks(self, albums: Sequence[Album], kind: pa.DataType, num: int) -> pa.Array:
        """`unit_rank` of `num` microbatches: who encodes each unit of their own images, in order.

        Raises:
            InternalError: A piece has another number of units than was planned; names step and piece.
        """
        rows_M: list[list[int]] = [[] for _ in range(num)]
        for album in albums:
            ranks = self._ranks_of(album.planned)
            self._require_units(album.planned, len(units_of(album.media, self._vision)))
            rows_M[album.microbatch] += ranks
        return lists_column(kind, rows_M)

    def columns(self, rank: int, schema: pa.Schema) -> dict[str, pa.Array]:
        """ENCODER_FIELDS of one rank: its units by (dp rank, order of the plan), at least a dummy in each microbatch.

        Raises:
            InternalError: Pixels are missing or of another size than their grids; names step and piece.
        """
        dummy = _Unit(grid=self._vision.dummy_grid, dp_rank=NO_DP, pixels=None)
        units_M = [units or [dummy] for units in self._units_of(rank)]
        loads_M = [[Load(num_rows=math.prod(unit.grid), data=unit.pixels) for unit in units] for units in units_M]
        pixels = payload_column(schema.field("pixel_values").type, loads_M, row_bytes=self._vision.row_bytes)
        grids = [[unit.grid for unit in units] for units in units_M]
        dp_ranks = [[unit.dp_rank for unit in units] for units in units_M]
        return {
            "pixel_values": pixels,
            "encoder_grid_thw": lists_column(schema.field("encoder_grid_thw").type, grids),
            "encoder_dp": lists_column(schema.field("encoder_dp").type, dp_ranks),
        }

    def _units_of(self, rank: int) -> list[list[_Unit]]:
        plan = self._plan
        mine_U = np.flatnonzero(plan.units.rank_U == rank)
        bin_U = plan.pieces.bin[plan.units.piece_U[mine_U]]
        dp_U, microbatch_U = bin_U // plan.bins_per_rank, bin_U % plan.bins_per_rank
        order = np.lexsort((mine_U, dp_U))
        units_M: list[list[_Unit]] = [[] for _ in range(plan.bins_per_rank)]
        for u, dp, m in zip(mine_U[order].tolist(), dp_U[order].tolist(), microbatch_U[order].tolist(), strict=True):
            units_M[m].append(self._unit(u, dp))
        return units_M

    def _unit(self, u: int, dp_rank: int) -> _Unit:
        planned = int(self._plan.units.piece_U[u])
        index = u - int(self._first_U[planned])
        if planned not in self._stocks:
            self._stocks[planned] = self._stock(planned)
        stock = self._stocks[planned]
        if index not in stock.pixels:
            raise InternalError(
                f"step {self._plan.step}: unit {index} of the piece {self._name(planned)} has no pixels"
            )
        return _Unit(grid=stock.grids[index], dp_rank=dp_rank, pixels=stock.pixels[index])

    def _stock(self, planned: int) -> _Stock:
        row = self._row_of.get(planned)
        if row is None or row not in self._media:
            raise InternalError(f"step {self._plan.step}: the piece {self._name(planned)} came without its images")
        grids = units_of(self._media[row], self._vision)
        self._require_units(planned, len(grids))
        units, data = self._media[row].units, self._delivery.pixels[row]
        sizes = [math.prod(grids[unit]) * self._vision.row_bytes for unit in units]
        require_size(self._plan, self._delivery, row, data, sum(sizes), what="pixels")
        if data is None:  # masked: zeros
            return _Stock(grids=grids, pixels=dict.fromkeys(range(len(grids))))
        edges = itertools.pairwise(itertools.accumulate(sizes, initial=0))
        pixels: dict[int, Bytes | None] = {u: data[a:b] for u, (a, b) in zip(units, edges, strict=True)}
        return _Stock(grids=grids, pixels=pixels)

    def _ranks_of(self, planned: int) -> list[int]:
        first, last = self._first_U[planned : planned + 2].tolist()
        ranks: list[int] = self._plan.units.rank_U[first:last].tolist()
        return ranks

    def _require_units(self, planned: int, got: int) -> None:
        want = len(self._ranks_of(planned))
        if got != want:
            raise InternalError(
                f"step {self._plan.step}: the piece {self._name(planned)} must have {want} units of images, got {got}"
            )

    def _name(self, planned: int) -> str:
        return name_of(int(getattr(self._plan.pieces, field)[planned]) for field in ("bin", *PLACE))


def _rows_of(plan: StepPlan, delivery: Delivery) -> dict[int, int]:
    """Piece of the plan that has units -> row of the delivery, of those that came with media."""
    key_of = ("bin", *PLACE)
    has_media = delivery.facts.column("media_kind").is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero((delivery.numbers("step") == plan.step) & has_media)
    columns = (delivery.numbers(name)[rows].tolist() for name in key_of)
    row_of = dict(zip(zip(*columns, strict=True), rows.tolist(), strict=True))
    pieces = np.unique(plan.units.piece_U)
    keys = zip(*(getattr(plan.pieces, name)[pieces].tolist() for name in key_of), strict=True)
    return {piece: row_of[key] for piece, key in zip(pieces.tolist(), keys, strict=True) if key in row_of}
