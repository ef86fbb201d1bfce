"""Units of media items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.media import patches_of, unit_grids
from loadmaster_flight.wire.schemas import MediaKind


@pytest.mark.parametrize(
    ("kind", "grid", "max_patches", "units"),
    [
        (MediaKind.IMAGE, (1, 4, 6), None, [(1, 4, 6)]),
        (MediaKind.VIDEO, (3, 4, 6), None, [(1, 4, 6)] * 3),
        (MediaKind.IMAGE, (1, 4, 6), 24, [(1, 4, 6)]),
        (MediaKind.IMAGE, (1, 14, 8), 40, [(1, 2, 8), (1, 4, 8), (1, 4, 8), (1, 4, 8)]),
        (MediaKind.IMAGE, (1, 4, 600), 24, [(1, 2, 600), (1, 2, 600)]),
        (MediaKind.AUDIO, (50, 1, 1), None, []),
    ],
)
def test_unit_grids_when_an_item_is_cut_then_its_units_are_these(
    kind: MediaKind, grid: tuple[int, int, int], max_patches: int | None, units: list[tuple[int, int, int]]
) -> None:
    assert unit_grids(kind, grid, merge=2, max_patches=max_patches) == units


@given(t=st.integers(1, 4), rows=st.integers(1, 60), columns=st.integers(1, 20), cap=st.integers(4, 400))
def test_unit_grids_when_capped_then_they_are_the_whole_and_no_larger_than_they_must(
    t: int, rows: int, columns: int, cap: int
) -> None:
    h, w, merge = 2 * rows, 2 * columns, 2
    units = unit_grids(MediaKind.VIDEO, (t, h, w), merge=merge, max_patches=cap)
    assert patches_of(units).sum() == t * h * w
    assert all(height % merge == 0 and height >= merge and width == w for _, height, width in units)
    assert all(height * width <= cap or height == merge for _, height, width in units)
