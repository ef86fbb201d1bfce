"""Arrow schemas of everything that travels between processes.

A position in a source's order is (epoch, shard, block, pos): `pos` counts the rows of a block in the order in which the
run takes them; `row` is the row's place in the file's block. A sample's id is (source, shard, block, row).
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

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


def batch_schema(*, seq_len: int) -> pa.Schema:
    """Schema of a training batch: one row per microbatch.

    `tokens` and `labels` are fixed-shape tensors [seq_len], int32. `cu_seqlens` is a list that starts at 0 and ends at
    seq_len: the tail is one masked document. The `doc_*` lists have one entry per real document and say what it is;
    the masked tail and dummy documents have none.
    """
    tensor = pa.fixed_shape_tensor(pa.int32(), [seq_len])
    return pa.schema(
        [
            pa.field("tokens", tensor, nullable=False, metadata={"axis": "token"}),
            pa.field("labels", tensor, nullable=False, metadata={"axis": "token"}),
            pa.field("cu_seqlens", _list(_I32), nullable=False, metadata={"axis": "document"}),
            pa.field("doc_source", _list(_U16), nullable=False, metadata={"axis": "document"}),
            pa.field("doc_shard", _list(_I32), nullable=False, metadata={"axis": "document"}),
            pa.field("doc_block", _list(_I32), nullable=False, metadata={"axis": "document"}),
            pa.field("doc_row", _list(_I32), nullable=False, metadata={"axis": "document"}),
            pa.field("doc_epoch", _list(_I32), nullable=False, metadata={"axis": "document"}),
            pa.field("doc_first_token", _list(_I32), nullable=False, metadata={"axis": "document"}),
            pa.field("doc_num_tokens", _list(_I32), nullable=False, metadata={"axis": "document"}),
            pa.field("global_valid_tokens", _I64, nullable=False, metadata={"axis": "step"}),
        ],
        metadata={"loadmaster.protocol": str(PROTOCOL_VERSION), "loadmaster.seq_len": str(seq_len)},
    )


IGNORE_INDEX = -100
"""Label of a token that has no loss; the convention of torch.nn.functional.cross_entropy."""
