"""Images and videos of a dp rank's microbatches, and their pixels where these travel with the documents.

# N = documents, M = microbatches
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from loadmaster_flight.wire.media import Grid, MediaItem, unit_grids
from loadmaster_flight.wire.modalities import VisionFields
from loadmaster_flight.wire.schemas import MediaKind
from loadmaster_flight.wire.step_plan import StepPlan

from .columns import Load, lists_column, payload_column
from .delivery import PieceMedia, require_size
from .matching import Documents
from .placement import Placement

NOWHERE = -1
"""image_doc and image_token_start of a dummy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Album:
    """All that one document has of pictures.

    Attributes:
        microbatch: Which of the rank's microbatches it is in.
        doc: Which of the microbatch's documents it is.
        start: Its first token in the microbatch.
        row: Where it is in the delivery.
        planned: Where it is in the plan's pieces.
    """

    microbatch: int
    doc: int
    start: int
    row: int
    planned: int
    media: PieceMedia

    @property
    def pictures(self) -> list[MediaItem]:
        """Images and videos, in order."""
        return [item for item in self.media.items if item.kind is not MediaKind.AUDIO]


def albums_of(documents: Documents, placement: Placement) -> list[Album]:
    """What each document with media has of them, in document order."""
    media = documents.delivery.media(documents.rows.tolist())
    if not media:
        return []
    microbatch_N, first_M = placement.microbatch_N, placement.first_M
    start_N = placement.start_N - microbatch_N * placement.seq_len - documents.place["first_token"]
    albums = []
    for i in [i for i, row in enumerate(documents.rows.tolist()) if row in media]:
        m, row = int(microbatch_N[i]), int(documents.rows[i])
        album = Album(
            microbatch=m,
            doc=i - int(first_M[m]),
            start=int(start_N[i]),
            row=row,
            planned=int(documents.planned[i]),
            media=media[row],
        )
        albums.append(album)
    return albums


def image_columns(albums: Sequence[Album], schema: pa.Schema, num: int, *, dummy: Grid | None) -> dict[str, pa.Array]:
    """`image_kind`, `grid_thw`, `image_doc` and `image_token_start` of `num` microbatches.

    Args:
        dummy: Grid of the picture that a microbatch without any is given; None: it has none.
    """
    rows_M: list[list[tuple[int, Grid, int, int]]] = [[] for _ in range(num)]
    for album in albums:
        rows_M[album.microbatch] += [
            (int(p.kind), p.grid, album.doc, album.start + p.token_start) for p in album.pictures
        ]
    if dummy is not None:
        rows_M = [rows or [(int(MediaKind.IMAGE), dummy, NOWHERE, NOWHERE)] for rows in rows_M]
    names = ("image_kind", "grid_thw", "image_doc", "image_token_start")
    return {
        name: lists_column(schema.field(name).type, [[row[i] for row in rows] for rows in rows_M])
        for i, name in enumerate(names)
    }


def inline_pixels(
    plan: StepPlan, documents: Documents, albums: Sequence[Album], vision: VisionFields, kind: pa.DataType, num: int
) -> pa.Array:
    """`pixel_values` of microbatches that have their own images; a dummy one where there are none.

    Raises:
        InternalError: Pixels are missing or of another size than their grids; names step and piece.
    """
    loads_M: list[list[Load]] = [[] for _ in range(num)]
    for album in albums:
        num_rows = sum(math.prod(picture.grid) for picture in album.pictures)
        if num_rows:
            data = documents.delivery.pixels[album.row]
            require_size(plan, documents.delivery, album.row, data, num_rows * vision.row_bytes, what="pixels")
            loads_M[album.microbatch].append(Load(num_rows=num_rows, data=data))
    dummy = Load(num_rows=math.prod(vision.dummy_grid))
    return payload_column(kind, [loads or [dummy] for loads in loads_M], row_bytes=vision.row_bytes)


def units_of(media: PieceMedia, vision: VisionFields) -> list[Grid]:
    """The grids of all units of a piece, in order."""
    return [
        grid
        for item in media.items
        for grid in unit_grids(item.kind, item.grid, merge=vision.merge, max_patches=vision.unit_cap)
    ]
