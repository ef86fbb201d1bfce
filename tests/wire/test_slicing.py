"""Context-parallel token indexes: a partition of the microbatch, with equal work; and places in a schema."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import MeshError
from loadmaster_flight.wire.slicing import WHOLE, SlicePlace, zigzag_index


@given(chunks=st.lists(st.integers(1, 9), min_size=1, max_size=12), cp=st.sampled_from([1, 2, 3, 4, 8]))
def test_zigzag_index_when_all_ranks_are_joined_then_each_token_is_there_once(chunks: list[int], cp: int) -> None:
    cu_seqlens = np.cumsum([0, *(2 * cp * n for n in chunks)])
    parts = [zigzag_index(cu_seqlens, cp, r) for r in range(cp)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(cu_seqlens[-1]))
    assert {len(part) for part in parts} == {cu_seqlens[-1] // cp}
    assert all((np.diff(part) > 0).all() for part in parts)


@given(chunks=st.lists(st.integers(1, 9), min_size=1, max_size=12), cp=st.sampled_from([2, 3, 4, 8]))
def test_zigzag_index_when_attention_is_causal_then_every_rank_has_equal_work(chunks: list[int], cp: int) -> None:
    lengths = [2 * cp * n for n in chunks]
    work = np.concatenate([np.arange(1, n + 1) for n in lengths])
    totals = {int(work[zigzag_index(np.cumsum([0, *lengths]), cp, r)].sum()) for r in range(cp)}
    assert len(totals) == 1


@given(chunks=st.lists(st.integers(1, 9), min_size=1, max_size=6), cp=st.sampled_from([1, 2, 4, 8]))
def test_zigzag_index_when_done_document_by_document_then_the_same(chunks: list[int], cp: int) -> None:
    """The rule as frameworks write it: view a document as 2*cp chunks, select r and 2*cp - 1 - r."""
    bounds = np.cumsum([0, *(2 * cp * n for n in chunks)])
    for r in range(cp):
        documents = [np.arange(a, b).reshape(2 * cp, -1) for a, b in itertools.pairwise(bounds)]
        selected = np.concatenate([chunked[[r, 2 * cp - 1 - r]].ravel() for chunked in documents])
        assert zigzag_index(bounds, cp, r).tolist() == selected.tolist()


def test_zigzag_index_when_a_segment_is_odd_then_the_rule_is_named() -> None:
    with pytest.raises(MeshError, match=r"divisible by 2\*cp = 4, got 6"):
        zigzag_index(np.array([0, 8, 14]), 2, 0)


def test_zigzag_index_when_the_coordinate_is_out_of_range_then_it_is_refused() -> None:
    with pytest.raises(MeshError, match=r"cp coordinate must be in \[0, 2\), got 2"):
        zigzag_index(np.array([0, 8]), 2, 2)


def test_place_when_it_goes_through_a_schema_then_the_same() -> None:
    place = SlicePlace(cp=4, cp_rank=3, pp=2, pp_rank=1)
    schema = pa.schema([], metadata={"other": "1", **place.to_metadata()})
    assert SlicePlace.from_metadata(schema.metadata) == place
    assert SlicePlace.from_metadata(None) == SlicePlace.from_metadata({b"other": b"1"}) == WHOLE


def test_place_when_made_of_coordinates_then_dp_and_tp_make_no_difference() -> None:
    mesh = {"pp": 2, "dp": 2, "cp": 2, "tp": 2}
    places = {
        SlicePlace.of(mesh, {"pp": pp, "dp": dp, "cp": cp, "tp": tp})
        for pp in range(2)
        for dp in range(2)
        for cp in range(2)
        for tp in range(2)
    }
    assert places == {SlicePlace(cp=2, cp_rank=cp, pp=2, pp_rank=pp) for cp in range(2) for pp in range(2)}
