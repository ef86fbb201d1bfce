"""What a training loop gets: one step of one rank.

# M = microbatches of the rank, C = tokens of a microbatch, T = C / cp: those that this rank gets
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadmaster_flight.wire.schemas import IGNORE_INDEX
from loadmaster_flight.wire.slicing import WHOLE, SlicePlace

from .clips import Clips, clips_of
from .digest import record_digest
from .documents import Documents, boundaries_of, documents_of
from .images import Images, images_of
from .tensors import Array, Framework, positions, to_ids, to_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatch:
    """One packed sequence, or this rank's slice of it. Arrays are rows of the `Batch` it came from.

    Attributes:
        tokens: Shape (T,). Padding is 0. None on a pipeline stage that gets none (by default all but the first).
        labels: Shape (T,), already shifted: the target of each token, -100 where there is no loss. None on a stage
            that gets none (by default all but the last).
        position_ids: Shape (T,), position of each token in its document.
        cu_seqlens: Segment boundaries of the whole microbatch from 0 to C, int32; the padded tail is a segment.
        max_seqlen: Longest segment, before slicing.
        documents: What the segments are, of the whole microbatch.
        num_rows: With layout pad the documents are rows of a (num_rows, T / num_rows) matrix; else 1.
        place: Which slice this is; by default the whole.
        images: Images and videos; None in a run without, and on a stage that gets none.
        audio: Likewise.
    """

    tokens: Array | None
    labels: Array | None
    position_ids: Array
    cu_seqlens: Array
    max_seqlen: int
    documents: Documents
    num_rows: int = 1
    place: SlicePlace = WHOLE
    images: Images | None = None
    audio: Clips | None = None

    @property
    def loss_mask(self) -> Array | None:
        """Shape (T,), bool: where labels count. None without labels."""
        return None if self.labels is None else self.labels != IGNORE_INDEX


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step of one rank: M microbatches of C tokens, T = C / cp of each.

    With torch, tokens, labels and position_ids are torch.int64 and the caller's own; with numpy they are int32, tokens
    and labels read only (a view of the received bytes). `loss_mask`, `position_ids` and `sample_ids` are computed at
    each use.

    Attributes:
        step: Step of the stream.
        tokens: Shape (M, T). Padding is 0. None on a pipeline stage that gets none (by default all but the first).
        labels: Shape (M, T), already shifted: the target of each token, -100 where there is no loss. None on a stage
            that gets none (by default all but the last).
        cu_seqlens: Per microbatch, segment boundaries from 0 to C, int32. Never sliced.
        max_seqlen: Per microbatch, the longest segment, before slicing.
        documents: Per microbatch, which samples it is made of, before slicing.
        global_valid_tokens: Labels that count in this step over all ranks and microbatches: divide the summed loss by
            it (and multiply by the number of dp ranks where gradients are averaged over them).
        num_tokens: Real tokens of the microbatches, without padding and before slicing.
        source_names: What `documents.source` indexes.
        num_rows: Rows of a microbatch with layout pad; else 1.
        record: The batch as it travelled, one row a microbatch.
        framework: TORCH or NUMPY.
        place: Which slice of the microbatches this is.
        images: Per microbatch, its images and videos; None in a run without, and on a stage that gets none.
        audio: Likewise.
    """

    step: int
    tokens: Array | None
    labels: Array | None
    cu_seqlens: list[Array]
    max_seqlen: list[int]
    documents: list[Documents]
    global_valid_tokens: int
    num_tokens: int
    source_names: list[str]
    num_rows: int
    record: pa.RecordBatch
    framework: Framework
    place: SlicePlace = WHOLE
    images: list[Images | None]
    audio: list[Clips | None]

    @property
    def loss_mask(self) -> Array | None:
        """Shape (M, T), bool: where labels count. None without labels."""
        return None if self.labels is None else self.labels != IGNORE_INDEX

    @property
    def position_ids(self) -> Array:
        """Shape (M, T): position of each token in its document."""
        return positions(boundaries_of(self.record), self.place, self.framework)

    @property
    def sample_ids(self) -> list[str]:
        """`source/shard/block/row@epoch` of every document of this rank (`:first_token` after it in cut samples)."""
        return [sid for documents in self.documents for sid in documents.sample_ids(self.source_names)]

    def __len__(self) -> int:
        """M, the number of microbatches."""
        return len(self.documents)

    def microbatches(self) -> Iterator[Microbatch]:
        """The microbatches, in order."""
        position_ids = self.position_ids
        for m in range(len(self)):
            yield Microbatch(
                tokens=None if self.tokens is None else self.tokens[m],
                labels=None if self.labels is None else self.labels[m],
                position_ids=position_ids[m],
                cu_seqlens=self.cu_seqlens[m],
                max_seqlen=self.max_seqlen[m],
                documents=self.documents[m],
                num_rows=self.num_rows,
                place=self.place,
                images=self.images[m],
                audio=self.audio[m],
            )

    def digest(self) -> str:
        """SHA-256 (hex) over the content of all fields as they travelled, in name order."""
        return record_digest(self.record)


def to_batch(
    record: pa.RecordBatch, *, step: int, source_names: list[str], num_rows: int, framework: Framework
) -> Batch:
    """Make a batch of a wire record. `framework` is resolved."""
    boundaries, documents = boundaries_of(record), documents_of(record)
    return Batch(
        step=step,
        tokens=_ids(record, "tokens", framework),
        labels=_ids(record, "labels", framework),
        cu_seqlens=[to_index(ends, framework) for ends in boundaries],
        max_seqlen=[_longest(ends) for ends in boundaries],
        documents=documents,
        global_valid_tokens=record.column("global_valid_tokens")[0].as_py(),
        num_tokens=sum(int(d.num_tokens.sum()) for d in documents),
        source_names=source_names,
        num_rows=num_rows,
        record=record,
        framework=framework,
        place=SlicePlace.from_metadata(record.schema.metadata),
        images=images_of(record, framework),
        audio=clips_of(record, framework),
    )


def _ids(record: pa.RecordBatch, name: str, framework: Framework) -> Array | None:
    return to_ids(record.column(name), framework) if name in record.schema.names else None


def _longest(ends: npt.NDArray[np.int32]) -> int:
    return int(np.diff(ends).max())
