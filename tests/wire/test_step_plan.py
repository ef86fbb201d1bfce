"""Plans of a step: compact form, slices, digest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster_flight.wire.errors import BadRequestError
from loadmaster_flight.wire.step_plan import (
    PIECE_COLUMNS,
    WHOLE,
    Pieces,
    StepPlan,
    Units,
    decode_plans,
    encode_plans,
    plans_from_bytes,
    plans_to_bytes,
)


@st.composite
def plans(draw: st.DrawFn) -> StepPlan:
    """Any plan in canonical order, with runs of samples and some cut pieces."""
    dp, per_rank = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rows = []
    places = st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 2), st.integers(0, 2))
    for source, epoch, shard, block in draw(st.sets(places, max_size=5)):
        start = draw(st.integers(0, 1000))
        for pos in range(start, start + draw(st.integers(1, 6))):
            is_cut = draw(st.booleans())
            first, num = (draw(st.integers(0, 3)) * 16, 16) if is_cut else (0, WHOLE)
            rows.append((source, epoch, (shard + block) % 3, shard, block, pos, first, num))
    bins = draw(st.lists(st.integers(0, dp * per_rank - 1), min_size=len(rows), max_size=len(rows)))
    columns = np.array([(*row, b) for row, b in zip(rows, bins, strict=True)], np.int64).reshape(len(rows), 9)
    units_N = np.array(draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))), np.int64)
    ranks = draw(st.lists(st.integers(0, 7), min_size=int(units_N.sum()), max_size=int(units_N.sum())))
    pieces = Pieces(**{name: columns[:, i].copy() for i, name in enumerate(PIECE_COLUMNS)})
    return StepPlan(
        step=draw(st.integers(0, 1 << 40)),
        revision=draw(st.integers(0, 9)),
        is_final=draw(st.booleans()),
        num_bins=dp * per_rank,
        seq_len=64,
        dp=dp,
        num_tokens=draw(st.integers(0, 1 << 40)),
        global_valid_tokens=draw(st.integers(0, 1 << 40)),
        weights_S=np.array(draw(st.lists(st.integers(0, 1 << 30), min_size=4, max_size=4)), np.int64),
        source_tokens_S=np.arange(4),
        pieces=pieces.take(pieces.canonical_order()),
        units=Units(piece_U=np.repeat(np.arange(len(rows)), units_N), rank_U=np.array(ranks, np.int64)),
    ).with_digest()


def assert_equal(a: StepPlan, b: StepPlan) -> None:
    for name in PIECE_COLUMNS:
        np.testing.assert_array_equal(getattr(a.pieces, name), getattr(b.pieces, name), err_msg=name)
    for name in ("piece_U", "rank_U"):
        np.testing.assert_array_equal(getattr(a.units, name), getattr(b.units, name), err_msg=name)
    np.testing.assert_array_equal(a.weights_S, b.weights_S)
    np.testing.assert_array_equal(a.source_tokens_S, b.source_tokens_S)
    names = ("step", "digest", "revision", "is_final", "num_bins", "seq_len", "dp", "num_tokens", "global_valid_tokens")
    assert [getattr(a, name) for name in names] == [getattr(b, name) for name in names]


@given(many=st.lists(plans(), max_size=3))
def test_plans_when_encoded_then_they_come_back(many: list[StepPlan]) -> None:
    for again in (decode_plans(encode_plans(many)), plans_from_bytes(plans_to_bytes(many))):
        assert len(again) == len(many)
        for a, b in zip(many, again, strict=True):
            assert_equal(a, b)
            assert b.with_digest().digest == a.digest


@given(plan=plans())
def test_of_ranks_when_all_slices_are_joined_then_they_are_the_plan(plan: StepPlan) -> None:
    slices = [plan.of_ranks({rank}) for rank in range(plan.dp)]
    assert sum(len(part.pieces) for part in slices) == len(plan.pieces)
    for rank, part in enumerate(slices):
        assert part.digest == plan.digest
        assert set((part.pieces.bin // plan.bins_per_rank).tolist()) <= {rank}
    assert_equal(plan.of_ranks(set(range(plan.dp))), plan)


@given(plan=plans(), num=st.integers(1, 4))
def test_of_partitions_when_all_slices_are_joined_then_they_are_the_plan(plan: StepPlan, num: int) -> None:
    slices = [plan.of_partitions([(source, k, num) for source in range(4)]) for k in range(num)]
    assert sum(len(part.pieces) for part in slices) == len(plan.pieces)
    for k, part in enumerate(slices):
        assert set((part.pieces.lane % num).tolist()) <= {k}
    assert_equal(plan.of_partitions([(source, k, num) for source in range(4) for k in range(num)]), plan)


@given(plan=plans())
def test_canonical_order_when_pieces_are_shuffled_then_it_restores_them(plan: StepPlan) -> None:
    shuffled = plan.pieces.take(np.random.default_rng(0).permutation(len(plan.pieces)))
    restored = shuffled.take(shuffled.canonical_order())
    places = [tuple(getattr(restored, n)[i] for n in PIECE_COLUMNS if n not in ("lane", "num_tokens", "bin"))
              for i in range(len(restored))]  # fmt: skip
    assert places == sorted(places)


@pytest.mark.parametrize(
    "change",
    [{"step": 1}, {"revision": 1}, {"is_final": True}, {"seq_len": 32}, {"global_valid_tokens": 1}, {"dp": 2}],
)
def test_digest_when_a_field_differs_then_the_digest_does(change: dict[str, int]) -> None:
    plan = StepPlan(
        step=0,
        num_bins=2,
        seq_len=64,
        dp=1,
        num_tokens=0,
        global_valid_tokens=0,
        weights_S=np.ones(1, np.int64),
        source_tokens_S=np.zeros(1, np.int64),
        pieces=Pieces.empty(),
    ).with_digest()
    assert replace(plan, **change).with_digest().digest != plan.digest  # type: ignore[arg-type]


def test_plans_from_bytes_when_it_is_no_arrow_stream_then_our_error_comes() -> None:
    with pytest.raises(BadRequestError, match="not an Arrow stream of step plans"):
        plans_from_bytes(b"nothing of the kind")


def test_decode_plans_when_of_another_schema_then_it_is_refused() -> None:
    with pytest.raises(BadRequestError, match=r"schema STEP_PLAN, got fields \['x'\]"):
        decode_plans(pa.record_batch({"x": [1]}))


@given(plans())
def test_bytes_when_samples_are_masked_then_they_come_along_and_the_digest_stays(plan: StepPlan) -> None:
    masked = replace(plan, masked=((1, 0, 2, 3, 4), (0, 1, 5, 6, 7)))
    other = replace(plan, step=plan.step + 1)
    found, beside = plans_from_bytes(plans_to_bytes([masked, other]))
    assert (found.masked, beside.masked) == (masked.masked, ())
    assert found.of_ranks({0}).of_partitions([(0, 0, 2)]).masked == masked.masked
    assert found.with_digest().digest == plan.digest
    assert_equal(found, masked)


@given(plan=plans(), encoder_rank=st.integers(0, 7))
def test_of_ranks_when_a_rank_encodes_images_then_their_pieces_are_there_with_all_their_units(
    plan: StepPlan, encoder_rank: int
) -> None:
    part = plan.of_ranks({0}, {encoder_rank})
    is_mine_N = plan.pieces.bin // plan.bins_per_rank == 0
    is_mine_N[plan.units.piece_U[plan.units.rank_U == encoder_rank]] = True
    kept = plan.pieces.take(is_mine_N)
    np.testing.assert_array_equal(part.pieces.pos, kept.pos)
    np.testing.assert_array_equal(part.pieces.source, kept.source)
    ranks = [plan.units.rank_U[plan.units.piece_U == i].tolist() for i in np.flatnonzero(is_mine_N)]
    assert [part.units.rank_U[part.units.piece_U == i].tolist() for i in range(len(part.pieces))] == ranks


def test_digest_when_only_an_encoder_rank_differs_then_it_differs() -> None:
    def plan(rank: int) -> StepPlan:
        pieces = Pieces(**{name: np.array([WHOLE if name == "num_tokens" else 0]) for name in PIECE_COLUMNS})
        numbers = {"step": 0, "num_bins": 1, "seq_len": 64, "dp": 1, "num_tokens": 9, "global_valid_tokens": 8}
        units = Units(piece_U=np.zeros(1, np.int64), rank_U=np.array([rank]))
        shares = {"weights_S": np.ones(1, np.int64), "source_tokens_S": np.ones(1, np.int64)}
        return StepPlan(**numbers, **shares, pieces=pieces, units=units).with_digest()  # type: ignore[arg-type]

    assert plan(0).digest != plan(1).digest
    assert replace(plan(0), units=Units.empty()).with_digest().digest != plan(0).digest
