"""Audio of a microbatch.

# A = clips, F = frames of all of them
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from loadmaster_flight.wire.modalities import AudioFields, audio_of

from .images import type_like
from .rows import row_matrices, small_lists
from .tensors import Array, Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Clips:
    """What a rank has of a microbatch's audio, mono, in document order. What its stage does not get is None.

    Small arrays are int64 (torch) or int32 (numpy).

    Attributes:
        values: Shape (F, hop), int16 samples. A view of the received batch: not to be written to.
        num_frames: Shape (A,), frames of each clip.
        doc: Shape (A,), index into `documents`.
        token_start: Shape (A,), the first placeholder of each in the whole microbatch, before cp slicing.
        fields: rate, hop, and merge: the frames of one placeholder.
    """

    values: Array | None
    num_frames: Array | None
    doc: Array | None
    token_start: Array | None
    fields: AudioFields

    @property
    def frame_offsets(self) -> Array | None:
        """Shape (A + 1,): where each clip begins in `values`, and the end."""
        counts = self.num_frames
        return None if counts is None else type_like(counts, np.cumsum([0, *counts.tolist()]))

    @property
    def own_tokens(self) -> list[tuple[int, int]]:
        """First placeholder in the whole microbatch and number of them, of each clip."""
        if self.num_frames is None or self.token_start is None:
            return []
        counts = [self.fields.num_tokens(frames) for frames in self.num_frames.tolist()]
        return list(zip(self.token_start.tolist(), counts, strict=True))


def clips_of(record: pa.RecordBatch, framework: Framework) -> list[Clips | None]:
    """The audio of each row of a wire batch; None where it has none: a run without audio, or at this stage."""
    fields = audio_of(record.schema.metadata)
    names = ("audio_frames", "audio_doc", "audio_token_start")
    here = [name for name in names if name in record.schema.names]
    if fields is None or not (here or "audio_values" in record.schema.names):
        return [None] * record.num_rows
    columns = {name: small_lists(record.column(name), framework) for name in here}
    if "audio_values" in record.schema.names:
        columns["audio_values"] = row_matrices(record.column("audio_values"), "int16", framework)
    rows = ({name: values[m] for name, values in columns.items()} for m in range(record.num_rows))
    return [
        Clips(
            values=row.get("audio_values"),
            num_frames=row.get("audio_frames"),
            doc=row.get("audio_doc"),
            token_start=row.get("audio_token_start"),
            fields=fields,
        )
        for row in rows
    ]
