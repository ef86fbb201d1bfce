"""Arrow schemas of everything that travels between processes.

A position in a source's order is (epoch, shard, block, pos): `pos` counts the rows of a block in the order in which the
run takes them; `row` is the row's place in the file's block. A sample's id is (source, shard, block, row).
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from .modalities import AudioFields, VisionFields, modality_metadata

PROTOCOL_VERSION = 1


class Verdict(IntEnum):
    """What measuring found out about a row. LANE_END is a mark, not a row: the lane has no more rows in this epoch."""

    OK = 0
    SKIPPED = 1
    BAD = 2
    LANE_END = 3


class MediaKind(IntEnum):
    """What a media item of a sample is."""

    IMAGE = 0
    VIDEO = 1
    AUDIO = 2


def _list(value: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("item", value, nullable=False))


GRID = pa.list_(pa.field("item", pa.int32(), nullable=False), 3)
"""(t, h, w) of an image or video in patches before merging; (frames, 1, 1) of audio."""


METADATA = pa.schema(
    [
        pa.field("source", pa.uint16(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("lane", pa.uint16(), nullable=False),
        pa.field("unit_index", pa.int32(), nullable=False),  # place in the lane's list of units
        pa.field("block_index", pa.int32(), nullable=False),  # place in the unit's list of blocks
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),
        pa.field("pos", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("verdict", pa.uint8(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("loss_spans", _list(pa.int32())),  # [start, stop) pairs of target tokens; null: all of them
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("image_patches", _list(pa.int32())),  # patches of each unit (see `wire.media`), null: no media
    ]
)
"""What measuring yields: one row a sample, never payload. A LANE_END row has shard = block = pos = row = -1.

A sample with media has `image_patches`, empty where its media are audio alone: it is never cut.
"""

PICTURE = pa.struct(
    [
        pa.field("jpeg", pa.binary(), nullable=False),
        pa.field("width", pa.int32(), nullable=False),
        pa.field("height", pa.int32(), nullable=False),
    ]
)
"""A small picture of an image, at most 160 pixels on its longer side."""

SHOWN = pa.schema(
    [
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),
        pa.field("pos", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),  # -1 where no text was asked for
        pa.field("reason", pa.string()),  # why it has no tokens
        pa.field("text", pa.string()),
        pa.field("num_images", pa.int32()),  # null where no images were asked for
        pa.field("images", pa.list_(PICTURE)),  # of the first ones; null likewise
    ]
)
"""What a loader tells people of samples, in the order asked for; pos = row = -1 where the block has no such row."""

PIECES = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("bin", pa.uint16(), nullable=False),
        pa.field("source", pa.uint16(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("pos", pa.int32(), nullable=False),
        pa.field("first_token", pa.int32(), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("tokens", pa.large_list(pa.field("item", pa.int32(), nullable=False)), nullable=False),
        pa.field("loss_spans", _list(pa.int32())),  # relative to first_token; null: all of them
        pa.field("is_masked", pa.bool_(), nullable=False),  # content failed when materialized: length kept, loss 0
        pa.field("reason", pa.string()),  # why it is masked
        pa.field("media_kind", _list(pa.uint8())),  # one a media item, values of `MediaKind`; null: no media
        pa.field("media_grid", _list(GRID)),
        pa.field("media_start", _list(pa.int32())),  # first placeholder of each item, from the sample's first token
        pa.field("media_units", _list(pa.int32())),  # the sample's units whose pixels are here, ascending
        pa.field("pixels", pa.large_binary()),  # of these units, one after the other
        pa.field("audio", pa.large_binary()),  # int16 frames of all audio items, one after the other
    ]
)
"""What materializing yields: `tokens` holds num_tokens values, or one more where the sample goes on after the piece.

A piece that is sent for its pixels alone has no tokens: its document is built elsewhere.
"""

_I32, _U16, _I64 = pa.int32(), pa.uint16(), pa.int64()

STEP_PLAN = pa.schema(
    [
        pa.field("step", _I64, nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("revision", _I32, nullable=False),
        pa.field("is_final", pa.bool_(), nullable=False),
        pa.field("is_hybrid", pa.bool_(), nullable=False),  # images are encoded by ranks of their own
        pa.field("num_bins", _I32, nullable=False),  # G, microbatches of all dp ranks together
        pa.field("seq_len", _I32, nullable=False),  # C, tokens a microbatch
        pa.field("dp", _I32, nullable=False),
        pa.field("num_tokens", _I64, nullable=False),
        pa.field("global_valid_tokens", _I64, nullable=False),
        pa.field("weights", _list(_I64), nullable=False),  # per source, 2**30 = 1
        pa.field("source_tokens", _list(_I64), nullable=False),  # per source, placed in this step
        pa.field("range_source", _list(_U16), nullable=False),
        pa.field("range_epoch", _list(_I32), nullable=False),
        pa.field("range_lane", _list(_U16), nullable=False),
        pa.field("range_shard", _list(_I32), nullable=False),
        pa.field("range_block", _list(_I32), nullable=False),
        pa.field("range_pos", _list(_I32), nullable=False),
        pa.field("range_count", _list(_I32), nullable=False),
        pa.field("bins", _list(_U16), nullable=False),  # one per piece, in the order of the ranges
        pa.field("cut_piece", _list(_I32), nullable=False),  # index of a piece that is not a whole sample
        pa.field("cut_first", _list(_I32), nullable=False),
        pa.field("cut_tokens", _list(_I32), nullable=False),
        pa.field("media_piece", _list(_I32), nullable=False),  # index of a piece whose images are encoded elsewhere
        pa.field("media_units", _list(_I32), nullable=False),  # how many units it has
        pa.field("unit_rank", _list(_U16), nullable=False),  # the rank that encodes each of them
    ]
)
"""One row a step: ranges of whole samples, one bin a piece, the cut pieces as exceptions, and who encodes images."""


AXES = ("token", "document", "image", "patch", "unit", "audio", "frame", "step")
"""What a field of a batch may run along. A cp rank gets its tokens of an axis token, and all of every other one."""

_PIXELS = {"uint8": pa.uint8(), "float16": pa.float16(), "bfloat16": pa.uint16()}


def batch_schema(
    *,
    seq_len: int,
    vision: VisionFields | None = None,
    audio: AudioFields | None = None,
    is_hybrid: bool = False,
) -> pa.Schema:
    """Schema of a training batch: one row per microbatch. Every field says its axis, by which it is sliced.

    `tokens` and `labels` are fixed-shape tensors [seq_len], int32. `cu_seqlens` is a list that starts at 0 and ends at
    seq_len: the tail is one masked document. The `doc_*` lists have one entry per real document and say what it is;
    the masked tail and dummy documents have none.

    With `vision`, `image_*` and `grid_thw` have one entry per image or video, in document order, and `pixel_values` is
    all their patches; a microbatch without images has one dummy image of document -1. Where `is_hybrid`, `pixel_values`
    is instead what this rank encodes, for whomever: `encoder_grid_thw` its units and `encoder_dp` the dp rank that
    gets the embeddings of each (65535: a dummy); `unit_rank` is who encodes the microbatch's own units.
    With `audio`, `audio_*` have one entry per clip, and `audio_values` is all their frames.
    """
    fields = [*_text_fields(seq_len), *_vision_fields(vision, is_hybrid), *_audio_fields(audio)]
    head = {b"loadmaster.protocol": str(PROTOCOL_VERSION).encode(), b"loadmaster.seq_len": str(seq_len).encode()}
    return pa.schema(fields, metadata=head | modality_metadata(vision, audio))


def _text_fields(seq_len: int) -> list[pa.Field]:
    tensor = pa.fixed_shape_tensor(pa.int32(), [seq_len])
    names = ("shard", "block", "row", "epoch", "first_token", "num_tokens")
    return [
        _on("token", "tokens", tensor),
        _on("token", "labels", tensor),
        _on("document", "cu_seqlens", _list(_I32)),
        _on("document", "doc_source", _list(_U16)),
        *(_on("document", f"doc_{name}", _list(_I32)) for name in names),
        _on("step", "global_valid_tokens", _I64),
    ]


def _vision_fields(vision: VisionFields | None, is_hybrid: bool) -> list[pa.Field]:
    if vision is None:
        return []
    fields = [
        _on("image", "image_kind", _list(pa.uint8())),
        _on("image", "grid_thw", _list(GRID)),
        _on("image", "image_doc", _list(_I32)),
        _on("image", "image_token_start", _list(_I32)),
        _on("patch", "pixel_values", _rows(_PIXELS[vision.dtype], vision.patch_dim)),
    ]
    if is_hybrid:
        fields += [
            _on("unit", "unit_rank", _list(_U16)),
            _on("unit", "encoder_grid_thw", _list(GRID)),
            _on("unit", "encoder_dp", _list(_U16)),
        ]
    return fields


def _audio_fields(audio: AudioFields | None) -> list[pa.Field]:
    if audio is None:
        return []
    names = ("audio_frames", "audio_doc", "audio_token_start")
    return [
        *(_on("audio", name, _list(_I32)) for name in names),
        _on("frame", "audio_values", _rows(pa.int16(), audio.hop)),
    ]


def _on(axis: str, name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"axis": axis})


def _rows(value: pa.DataType, width: int) -> pa.DataType:
    """A large list of rows of `width` numbers."""
    row = pa.list_(pa.field("item", value, nullable=False), width)
    return pa.large_list(pa.field("item", row, nullable=False))


NO_DP = 65535
"""`encoder_dp` of a dummy: nobody gets its embeddings."""

IGNORE_INDEX = -100
"""Label of a token that has no loss; the convention of torch.nn.functional.cross_entropy."""
