"""Merging lanes into a source's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.schemas import METADATA, Verdict
from loadmaster_server.planning import Demand, NeedMetadata
from loadmaster_server.planning.lanes import EpochLanes
from loadmaster_server.planning.lists import Lists
from loadmaster_server.planning.rows import BLOCK_INDEX, LANE, POS, TOKENS, UNIT, VERDICT, RowTable

Make = Callable[..., Any]


def _rows(lane: int, first: int, num: int, *, per_block: int = 3, ends: bool = False) -> RowTable:
    """Rows first .. first + num of a lane whose blocks hold `per_block` rows and whose units hold two blocks."""
    place = np.arange(first, first + num)
    values = np.zeros((num + ends, 12), np.int64)
    values[:num, UNIT], values[:num, BLOCK_INDEX] = np.divmod(place // per_block, 2)
    values[:num, POS], values[:num, TOKENS] = place % per_block, 1
    values[:, LANE], values[num:, VERDICT] = lane, Verdict.LANE_END
    none = np.full(num + ends, None)
    return RowTable(values_NF=values, spans_N=none, reasons_N=none, patches=Lists.nothing(num + ends))


def _round_robin(counts: list[int], per_block: int = 3) -> list[tuple[int, ...]]:
    order = []
    for place in range(max(counts, default=0)):
        for lane, count in enumerate(counts):
            if place < count:
                unit, block = divmod(place // per_block, 2)
                order.append((lane, unit, block, place % per_block))
    return order


def _keys(table: RowTable) -> list[tuple[int, ...]]:
    return [tuple(row) for row in table.values_NF[:, [LANE, UNIT, BLOCK_INDEX, POS]].tolist()]


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 20), min_size=1, max_size=5), seed=st.integers(0, 2**32))
def test_merge_when_rows_arrive_in_any_way_then_lanes_take_turns(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes = EpochLanes(0, 0, np.zeros((len(counts), 3), np.int64), 0)
    known, merged = [0] * len(counts), []
    is_ended = [False] * len(counts)
    while not lanes.is_known:
        lane = int(rng.integers(len(counts)))
        again, more = int(rng.integers(0, 3)), int(rng.integers(0, 6))
        first, stop = max(0, known[lane] - again), min(counts[lane], known[lane] + more)
        is_ended[lane] |= stop == counts[lane]
        lanes.add(_rows(lane, first, stop - first, ends=is_ended[lane]))
        known[lane] = stop
        merged += _keys(lanes.merge())
        assert merged == _round_robin(counts)[: len(merged)]
    assert merged == _round_robin(counts)
    assert lanes.num_unmerged == 0


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 12), min_size=1, max_size=5), data=st.data())
def test_merge_when_started_from_a_cursor_then_the_rest_of_the_order_follows(
    counts: list[int], data: st.DataObject
) -> None:
    order = _round_robin(counts)
    at = data.draw(st.integers(0, len(order)))
    taken = [sum(lane == other for other, *_ in order[:at]) for lane in range(len(counts))]
    cursor = [[(n - 1) // 3 // 2, (n - 1) // 3 % 2, (n - 1) % 3 + 1] if n else [0, 0, 0] for n in taken]
    next_lane = (order[at - 1][0] + 1) % len(counts) if at else 0
    lanes = EpochLanes(0, 0, np.array(cursor, np.int64), next_lane)
    for lane, count in enumerate(counts):
        lanes.add(_rows(lane, taken[lane], count - taken[lane], ends=True))
    assert _keys(lanes.merge()) == order[at:]


def test_add_when_rows_are_missing_in_between_then_source_lane_and_place_are_named() -> None:
    lanes = EpochLanes(7, 2, np.zeros((2, 3), np.int64), 0)
    lanes.add(_rows(1, 0, 1))
    with pytest.raises(BadRequestError, match=r"source 7, epoch 2, lane 1.*expected .* \[0, 0, 1\].*got \[0, 0, 2\]"):
        lanes.add(_rows(1, 2, 1))
    with pytest.raises(BadRequestError, match=r"lane must be in \[0, 2\) for source 7, got 2"):
        lanes.add(_rows(2, 0, 1))


def test_demand_when_lanes_are_unequal_then_only_those_behind_are_asked() -> None:
    lanes = EpochLanes(3, 0, np.zeros((3, 3), np.int64), 0)
    lanes.add(_rows(0, 0, 40))
    lanes.add(_rows(1, 0, 2, ends=True))
    expected = Demand(source=3, epoch=0, cursors=[[2, 0, 0, 0]], rows_per_lane=10)
    assert lanes.demand(20) == expected


def test_source_order_when_lanes_differ_in_length_then_short_ones_drop_out(
    make_rig: Make, spec_of: Make, fake_source: Make
) -> None:
    fake = fake_source([100] * 37, 4, 8)
    rig = make_rig(spec_of(1, layout="pad", until={"epochs": 2}), [fake])
    drawn = []
    for plan in rig.steps():
        drawn += list(zip(plan.pieces.epoch.tolist(), plan.pieces.lane.tolist(), strict=True))
    counts = {epoch: [len(fake.lane_rows(epoch, lane)) for lane in range(4)] for epoch in (0, 1)}
    expected = [(epoch, lane) for epoch in (0, 1) for lane, *_ in _round_robin(counts[epoch])]
    chunks = [expected[i : i + 8] for i in range(0, len(expected), 8)]
    assert sorted(drawn) == sorted(expected)
    assert [sorted(drawn[i : i + 8]) for i in range(0, len(drawn), 8)] == [sorted(chunk) for chunk in chunks]


def test_demands_when_epochs_are_short_then_several_are_asked_at_once(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(1), [[20] * 6])
    rig.steps(4)
    assert rig.num_refusals <= 12
    epochs = {demand.epoch for demand in rig.planner.demands()}
    assert not epochs or len(epochs) > 10


def test_plan_when_rows_are_fed_on_demand_then_few_round_trips_are_needed(make_rig: Make, spec_of: Make) -> None:
    lengths = [(1 + np.random.default_rng(s).lognormal(4, 1, 5000)).astype(int).tolist() for s in range(3)]
    rig = make_rig(spec_of(3, weights=[0.9, 0.09, 0.01], seq_len=4096), lengths)
    rig.steps(20)
    assert rig.num_refusals <= 20


def test_need_metadata_when_raised_then_every_hungry_source_is_asked(make_rig: Make, spec_of: Make) -> None:
    rig = make_rig(spec_of(3, weights=[1.0, 1.0, 0.0]), [[100] * 90] * 3)
    with pytest.raises(NeedMetadata) as need:
        rig.planner.plan_next()
    assert [demand.source for demand in need.value.demands] == [0, 1]
    assert all(d.rows_per_lane * len(d.cursors) >= 8 for d in need.value.demands)
    assert need.value.demands[0].cursors == [[0, 0, 0, 0], [1, 0, 0, 0]]


def test_feed_when_the_batch_is_not_metadata_then_it_is_refused(make_rig: Make, spec_of: Make, batch_of: Make) -> None:
    planner = make_rig(spec_of(1), [[100]]).planner
    with pytest.raises(BadRequestError, match="must have the schema METADATA"):
        planner.feed(batch_of([]).select(["source"]))
    row = dict.fromkeys(METADATA.names, 0) | {"reason": None, "loss_spans": None, "image_patches": None}
    with pytest.raises(BadRequestError, match="num_tokens must be at least 1"):
        planner.feed(batch_of([row]))
    with pytest.raises(BadRequestError, match=r"source must be in \[0, 1\), got 4"):
        planner.feed(batch_of([row | {"source": 4, "num_tokens": 1}]))
