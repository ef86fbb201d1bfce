"""Context-parallel slices: a partition of the microbatch, with equal work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.constructor.slices import require_whole_microbatches, zigzag_index
from loadmaster_flight.wire.errors import MeshError


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


def test_zigzag_index_when_a_segment_is_odd_then_the_rule_is_named() -> None:
    with pytest.raises(MeshError, match=r"divisible by 2\*cp = 4, got 6"):
        zigzag_index(np.array([0, 8, 14]), 2, 0)


def test_zigzag_index_when_the_coordinate_is_out_of_range_then_it_is_refused() -> None:
    with pytest.raises(MeshError, match=r"cp coordinate must be in \[0, 2\), got 2"):
        zigzag_index(np.array([0, 8]), 2, 2)


def test_require_whole_microbatches_when_the_mesh_has_cp_then_it_is_refused() -> None:
    require_whole_microbatches({"pp": 2, "dp": 4, "cp": 1, "tp": 2})
    with pytest.raises(MeshError, match=r"mesh\.cp must be 1"):
        require_whole_microbatches({"dp": 2, "cp": 2})
