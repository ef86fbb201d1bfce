"""Audio of a dp rank's microbatches: it travels with its documents."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from loadmaster_flight.wire.media import MediaItem
from loadmaster_flight.wire.modalities import AudioFields
from loadmaster_flight.wire.schemas import MediaKind
from loadmaster_flight.wire.step_plan import StepPlan

from .columns import Load, lists_column, payload_column
from .delivery import Delivery, require_size
from .images import Album

SAMPLE_BYTES = 2


def audio_columns(
    plan: StepPlan, delivery: Delivery, albums: Sequence[Album], audio: AudioFields, schema: pa.Schema, num: int
) -> dict[str, pa.Array]:
    """`audio_frames`, `audio_doc`, `audio_token_start` and `audio_values` of `num` microbatches, in document order.

    Raises:
        InternalError: Audio is missing or of another size than its frames; names step and piece.
    """
    rows_M: list[list[tuple[int, int, int]]] = [[] for _ in range(num)]
    loads_M: list[list[Load]] = [[] for _ in range(num)]
    row_bytes = SAMPLE_BYTES * audio.hop
    for album in albums:
        clips = _clips(album)
        rows_M[album.microbatch] += [(clip.grid[0], album.doc, album.start + clip.token_start) for clip in clips]
        num_frames = sum(clip.grid[0] for clip in clips)
        if num_frames:
            data = delivery.audio[album.row]
            require_size(plan, delivery, album.row, data, num_frames * row_bytes, what="audio")
            loads_M[album.microbatch].append(Load(num_rows=num_frames, data=data))
    names = ("audio_frames", "audio_doc", "audio_token_start")
    columns = {
        name: lists_column(schema.field(name).type, [[row[i] for row in rows] for rows in rows_M])
        for i, name in enumerate(names)
    }
    return columns | {
        "audio_values": payload_column(schema.field("audio_values").type, loads_M, row_bytes=row_bytes),
    }


def _clips(album: Album) -> list[MediaItem]:
    return [item for item in album.media.items if item.kind is MediaKind.AUDIO]
