"""Images and videos of a microbatch, and what its rank encodes of them.

# I = images and videos of the microbatch, U = units of these, V = units that this rank encodes, P = patches,
# D = numbers of a patch
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from loadmaster_flight.wire.media import Grid, unit_grids
from loadmaster_flight.wire.modalities import VisionFields, vision_of
from loadmaster_flight.wire.schemas import NO_DP, MediaKind
from loadmaster_flight.wire.slicing import RankSeat

from .rows import row_matrices, small_lists
from .tensors import Array, Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """What a rank has of a microbatch's images. A field that its pipeline stage does not get is None.

    Mostly pixels travel with their documents: `pixel_values` is the microbatch's own images, all cp ranks of a dp rank
    get all of them, and a microbatch without images has one dummy so that no encoder stands still. In a hybrid run
    `pixel_values` is what this rank encodes, for whichever dp rank; `loadmaster.encoder.exchange` brings the embeddings
    to where they belong. `encoder_grid_thw` is always of `pixel_values`.

    Small arrays are int64 (torch) or int32 (numpy).

    Attributes:
        pixel_values: Shape (P, D): uint8, float16 or bfloat16 (numpy: its bits, uint16). A view of the received
            batch: not to be written to. Normalise uint8 on the device: `loadmaster.vision.normalise`.
        encoder_grid_thw: Shape (V, 3): the patches (t, h, w) of each part of pixel_values, before merging.
        encoder_dp: Hybrid: shape (V,), the dp rank that gets the embeddings of each unit; 65535: a dummy.
        grid_thw: Shape (I, 3), the microbatch's own images and videos, in document order; a dummy too.
        kinds: Shape (I,): 0 an image, 1 a video.
        doc: Shape (I,), index into `documents`; -1: a dummy.
        token_start: Shape (I,), the first placeholder of each in the whole microbatch, before cp slicing; -1: a dummy.
        unit_rank: Hybrid: shape (U,), the rank that encodes each unit of the microbatch's own images, in order.
        is_dummy: Whether pixel_values is a dummy alone.
        fields: Layout, dtype, sizes, mean and std of pixel_values.
        seat: Hybrid: this rank and its mesh.
    """

    pixel_values: Array | None
    encoder_grid_thw: Array | None
    encoder_dp: Array | None
    grid_thw: Array | None
    kinds: Array | None
    doc: Array | None
    token_start: Array | None
    unit_rank: Array | None
    is_dummy: bool
    fields: VisionFields
    seat: RankSeat | None = None

    @property
    def is_hybrid(self) -> bool:
        """Whether embeddings have to be exchanged."""
        return self.seat is not None

    @property
    def mean(self) -> tuple[float, float, float]:
        """Of red, green and blue in [0, 1]."""
        return self.fields.mean

    @property
    def std(self) -> tuple[float, float, float]:
        return self.fields.std

    @property
    def frames(self) -> Array | None:
        """With layout frames: pixel_values as pictures, shape (P, 3, height, width)."""
        if self.pixel_values is None or self.fields.layout != "frames":
            return None
        return self.pixel_values.reshape(-1, 3, *self.fields.size)

    @property
    def patch_offsets(self) -> Array | None:
        """Shape (V + 1,): where each part of `encoder_grid_thw` begins in pixel_values, and the end."""
        grids = self.encoder_grid_thw
        if grids is None:
            return None
        ends = np.cumsum([0, *(t * h * w for t, h, w in grids.tolist())])
        return type_like(grids, ends)

    @property
    def encoder_tokens(self) -> list[int]:
        """Embeddings that the encoder yields of each part of `encoder_grid_thw`, dummies included."""
        return (
            [] if self.encoder_grid_thw is None else [self.fields.num_tokens(g) for g in _grids(self.encoder_grid_thw)]
        )

    @property
    def own_tokens(self) -> list[tuple[int, int]]:
        """First placeholder in the whole microbatch and number of them, of each of its own images."""
        if self.grid_thw is None or self.token_start is None:
            return []
        starts = self.token_start.tolist()
        counts = [self.fields.num_tokens(grid) for grid in _grids(self.grid_thw)]
        return [(start, count) for start, count in zip(starts, counts, strict=True) if start >= 0]

    @property
    def unit_tokens(self) -> list[int]:
        """Embeddings of each unit of the microbatch's own images, in order."""
        if self.grid_thw is None or self.kinds is None:
            return []
        merge, cap = self.fields.merge, self.fields.unit_cap
        items = zip(self.kinds.tolist(), _grids(self.grid_thw), strict=True)
        units = (u for kind, grid in items for u in unit_grids(MediaKind(kind), grid, merge=merge, max_patches=cap))
        return [self.fields.num_tokens(unit) for unit in units]


def images_of(record: pa.RecordBatch, framework: Framework) -> list[Images | None]:
    """The images of each row of a wire batch; None where it has none: of a text run, or at this stage."""
    fields = vision_of(record.schema.metadata)
    names = ("image_kind", "grid_thw", "image_doc", "image_token_start", "unit_rank", "encoder_grid_thw", "encoder_dp")
    here = [name for name in names if name in record.schema.names]
    if fields is None or not (here or "pixel_values" in record.schema.names):
        return [None] * record.num_rows
    columns = {name: small_lists(record.column(name), framework) for name in here}
    if "pixel_values" in record.schema.names:
        columns["pixel_values"] = row_matrices(record.column("pixel_values"), fields.dtype, framework)
    seat = RankSeat.from_metadata(record.schema.metadata)
    rows = ({name: values[m] for name, values in columns.items()} for m in range(record.num_rows))
    return [_images(row, fields, seat) for row in rows]


def _images(row: dict[str, Array], fields: VisionFields, seat: RankSeat | None) -> Images:
    has_pixels = "pixel_values" in row
    owners = row.get("encoder_dp" if seat is not None else "image_doc")
    dummy = NO_DP if seat is not None else -1
    return Images(
        pixel_values=row.get("pixel_values"),
        encoder_grid_thw=row.get("encoder_grid_thw" if seat is not None else "grid_thw") if has_pixels else None,
        encoder_dp=row.get("encoder_dp"),
        grid_thw=row.get("grid_thw"),
        kinds=row.get("image_kind"),
        doc=row.get("image_doc"),
        token_start=row.get("image_token_start"),
        unit_rank=row.get("unit_rank"),
        is_dummy=owners is not None and owners.tolist() == [dummy],
        fields=fields,
        seat=seat,
    )


def _grids(grids: Array) -> list[Grid]:
    return [(t, h, w) for t, h, w in grids.tolist()]


def type_like(like: Array, values: np.ndarray) -> Array:
    """Whole numbers as an array of the same framework and dtype."""
    return values.astype(like.dtype) if isinstance(like, np.ndarray) else like.new_tensor(values)
