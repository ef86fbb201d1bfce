"""PIECES and METADATA from chunks whose tokens say where they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.loader.chunk import Chunk, Place, SpanTable
from loadmaster_flight.loader.gather import Cargo, gather_pieces
from loadmaster_flight.loader.metadata import LanePart, lane_end, metadata_batch
from loadmaster_flight.wire.errors import DataError
from loadmaster_flight.wire.schemas import METADATA, PIECES, Verdict
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, WHOLE, Pieces


def pieces_at(*rows: tuple[int, int, int]) -> Pieces:
    """Pieces of source 1, shard 2, block 4: (pos, first_token, num_tokens)."""
    fixed = {"source": 1, "epoch": 0, "lane": 0, "shard": 2, "block": 4, "bin": 5}
    columns = {name: np.full(len(rows), value, np.int64) for name, value in fixed.items()}
    for i, name in enumerate(("pos", "first_token", "num_tokens")):
        columns[name] = np.array([row[i] for row in rows], np.int64)
    return Pieces(**{name: columns[name] for name in PIECE_COLUMNS})


def gather(pieces: Pieces, *chunks: Chunk, planned: list[list[int]] | None = None) -> pa.RecordBatch:
    starts = np.array([chunk.pos for chunk in chunks])
    lengths = [np.array(p) for p in planned] if planned else [chunk.lengths_N for chunk in chunks]
    chunk_N = np.searchsorted(starts, pieces.pos, side="right") - 1
    cargo = Cargo(chunks=chunks, planned_M=lengths, chunk_N=chunk_N)
    return gather_pieces(9, pieces, cargo, source_names=["prose", "code"])


def test_gather_when_samples_are_whole_copies_each_to_its_end(make_chunk: Any) -> None:
    found = gather(pieces_at((0, 0, WHOLE), (1, 0, WHOLE), (3, 0, WHOLE)), make_chunk(0, [2, 3, 1, 2]))
    assert found.schema.equals(PIECES)
    assert found.column("tokens").to_pylist() == [[0, 1], [1000, 1001, 1002], [3000, 3001]]
    assert found.column("num_tokens").to_pylist() == [2, 3, 2]
    assert found.column("row").to_pylist() == [7, 8, 10]
    assert found.column("step").to_pylist() == [9, 9, 9]
    assert found.column("bin").to_pylist() == [5, 5, 5]
    assert found.column("loss_spans").to_pylist() == [None] * 3
    assert not any(found.column("is_masked").to_pylist())


def test_gather_when_sample_goes_on_sends_one_token_more(make_chunk: Any) -> None:
    found = gather(pieces_at((0, 0, 4), (0, 4, 4), (0, 8, 2)), make_chunk(0, [10]))
    assert found.column("tokens").to_pylist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8], [8, 9]]
    assert found.column("num_tokens").to_pylist() == [4, 4, 2]


def test_gather_when_pieces_lie_in_several_chunks_keeps_plan_order(make_chunk: Any) -> None:
    chunks = make_chunk(0, [1, 2]), make_chunk(10, [2, 2])
    found = gather(pieces_at((1, 0, WHOLE), (10, 0, WHOLE), (11, 0, WHOLE), (0, 0, WHOLE)), *chunks)
    assert found.column("tokens").to_pylist() == [[1000, 1001], [10000, 10001], [11000, 11001], [0]]


def test_gather_when_step_is_empty_yields_no_rows(make_chunk: Any) -> None:
    assert gather(pieces_at(), make_chunk(0, [1])).num_rows == 0
    cargo = Cargo(chunks=[], planned_M=[], chunk_N=np.zeros(0, np.int64))
    assert gather_pieces(0, Pieces.empty(), cargo, source_names=[]).num_rows == 0


def test_gather_when_spans_are_given_cuts_and_counts_them_from_the_piece(make_chunk: Any) -> None:
    chunk = make_chunk(0, [10, 3, 4], spans=[[2, 6, 8, 10], None, []])
    found = gather(pieces_at((0, 0, 4), (0, 4, 4), (0, 8, 2), (1, 0, WHOLE), (2, 0, WHOLE)), chunk)
    # Targets of the piece [0, 4) are tokens 1 to 4; of [4, 8): 5 to 8; of [8, 10): 9.
    assert found.column("loss_spans").to_pylist() == [[2, 5], [1, 2, 4, 5], [1, 2], None, []]


def test_gather_when_content_fails_now_masks_the_piece_and_keeps_its_length(make_chunk: Any) -> None:
    now = make_chunk(0, [3, 3, 3], bad=(1,))
    found = gather(pieces_at((0, 0, WHOLE), (1, 0, WHOLE), (2, 0, WHOLE)), now, planned=[[3, 3, 3]])
    assert found.column("is_masked").to_pylist() == [False, True, False]
    assert found.column("tokens").to_pylist() == [[0, 1, 2], [0, 0, 0], [2000, 2001, 2002]]
    assert found.column("loss_spans").to_pylist() == [None, [], None]


def test_gather_when_length_changed_masks_the_piece(make_chunk: Any) -> None:
    found = gather(pieces_at((0, 0, WHOLE), (1, 0, WHOLE)), make_chunk(0, [5, 2]), planned=[[3, 2]])
    assert found.column("is_masked").to_pylist() == [True, False]
    assert found.column("tokens").to_pylist() == [[0, 0, 0], [1000, 1001]]


def test_gather_when_cut_piece_ends_behind_the_sample_masks_it(make_chunk: Any) -> None:
    found = gather(pieces_at((0, 4, 4)), make_chunk(0, [6]))
    assert found.column("is_masked").to_pylist() == [True]
    assert found.column("tokens").to_pylist() == [[0, 0, 0, 0]]


def test_gather_when_length_of_failed_sample_is_unknown_raises_with_its_place(make_chunk: Any) -> None:
    with pytest.raises(DataError, match=r"step 9: source 'code' shard 2 block 4 row 8"):
        gather(pieces_at((1, 0, WHOLE)), make_chunk(0, [3, 3], bad=(1,)))


@given(st.data())
def test_gather_when_pieces_are_any_equals_slicing_row_by_row(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=12))
    offsets = np.cumsum([0, *lengths])
    tokens = np.arange(offsets[-1], dtype=np.int32)
    num = len(lengths)
    chunk = Chunk(
        pos=0,
        rows_N=np.arange(num),
        verdict_N=np.zeros(num, np.uint8),
        reasons=None,
        tokens_T=tokens,
        offsets=offsets,
        spans=SpanTable.from_lists(None, num),
        row_bytes_N=np.zeros(num, np.int64),
    )
    cuts = []
    for pos in data.draw(st.lists(st.integers(0, num - 1), max_size=20)):
        first = data.draw(st.integers(0, lengths[pos] - 1))
        cuts.append((pos, first, data.draw(st.integers(1, lengths[pos] - first))))
    found = gather(pieces_at(*cuts), chunk).column("tokens").to_pylist()
    rows = [tokens[offsets[pos] : offsets[pos + 1]].tolist() for pos in range(num)]
    assert found == [rows[pos][first : first + n + 1] for pos, first, n in cuts]


def test_metadata_when_parts_are_joined_has_a_row_a_sample_and_lane_ends(make_chunk: Any) -> None:
    place, chunk = Place(1, 3, 2, 4), make_chunk(6, [2, 5, 1, 4], bad=(8,), spans=[None, [1, 3], None, None])
    part = LanePart(lane=2, unit_index=11, block_index=12, place=place, chunk=chunk, start=1, stop=4)
    found = metadata_batch([part, lane_end(2, 1, 3)])
    assert found.schema.equals(METADATA)
    assert found.to_pydict() == {
        "source": [1] * 4,
        "epoch": [3] * 4,
        "lane": [2] * 4,
        "unit_index": [11, 11, 11, -1],
        "block_index": [12, 12, 12, -1],
        "shard": [2, 2, 2, -1],
        "block": [4, 4, 4, -1],
        "pos": [7, 8, 9, -1],
        "row": [14, 15, 16, -1],
        "verdict": [Verdict.OK, Verdict.BAD, Verdict.OK, Verdict.LANE_END],
        "reason": [None, "broken", None, None],
        "num_tokens": [5, 0, 4, 0],
        "loss_spans": [[1, 3], None, None, None],
        "size_bytes": [20, 0, 16, 0],
        "image_patches": [None] * 4,
    }


def test_metadata_when_there_are_no_parts_is_empty() -> None:
    assert metadata_batch([]).num_rows == 0


def test_gather_when_a_sample_failed_before_masks_all_its_pieces_though_it_can_be_read(make_chunk: Any) -> None:
    pieces, chunk = pieces_at((0, 0, 2), (0, 2, 2), (1, 0, WHOLE)), make_chunk(0, [4, 3])
    lengths = [chunk.lengths_N]
    for masked, want in (((1, 0, 2, 4, 7), [True, True, False]), ((1, 1, 2, 4, 7), [False] * 3)):
        cargo = Cargo(chunks=[chunk], planned_M=lengths, chunk_N=np.zeros(3, np.int64), masked=[masked])
        found = gather_pieces(9, pieces, cargo, source_names=["prose", "code"])
        assert found.column("is_masked").to_pylist() == want
        assert [not any(tokens) for tokens in found.column("tokens").to_pylist()] == want
        assert found.column("num_tokens").to_pylist() == [2, 2, 3]
