"""Streams with images through a real constructor and loaders over Flight, inline and hybrid."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import loadmaster
from loadmaster_flight.spec import RunSpec
from loadmaster_flight.wire.schemas import NO_DP, MediaKind
from support.pictures import Doc
from support.services import FakeLoader, FakePlanner

NUM_STEPS = 3
IMAGE, VIDEO = MediaKind.IMAGE, MediaKind.VIDEO


def pictures(step: int) -> list[Doc]:
    """Four bins; step 1 has no picture at all."""
    places = itertools.count(10 * step)
    media = [((IMAGE, (1, 4, 2)),), ((VIDEO, (2, 2, 2)), (IMAGE, (1, 2, 4))), (), ((IMAGE, (1, 2, 2)),)]
    return [
        Doc(bin=b, pos=next(places), source=b % 2, text=2, media=media[(b + step) % 4] if step != 1 else ())
        for b in range(4)
    ]


@pytest.fixture
def serve(
    make_planner: Callable[..., FakePlanner], make_constructor: Callable[..., Any], stack: ExitStack
) -> Callable[..., FakePlanner]:
    """A planner with two loaders and a constructor; `encoders` encode, None: inline."""

    def make(encoders: list[int] | None = None) -> FakePlanner:
        planner = make_planner(num_steps=NUM_STEPS, world_size=2, num_bins=4)
        planner.pictures, planner.encoders = pictures, encoders
        other = FakeLoader(planner)
        stack.callback(other.stop)
        planner.route_to(planner.loader, other)
        make_constructor(planner)
        return planner

    return make


def read_all(planner: FakePlanner, connect: Callable[..., loadmaster.Stream]) -> list[list[loadmaster.Batch]]:
    streams = [connect(planner, rank=rank) for rank in range(2)]
    steps = zip(*streams, strict=True)
    return [list(batches) for batches in zip(*steps, strict=True)]


def units_sent(planner: FakePlanner, step: int) -> list[bytes]:
    vision = RunSpec.model_validate(planner.spec()).media.vision
    return sorted(unit.tobytes() for doc in pictures(step) for unit in doc.pixels(vision))


def test_stream_when_images_go_with_documents_then_ranks_get_those_of_their_microbatches(
    serve: Callable[..., FakePlanner], connect: Callable[..., loadmaster.Stream]
) -> None:
    planner = serve()
    ranks = read_all(planner, connect)
    for step in range(NUM_STEPS):
        found = [images for batches in ranks for images in batches[step].images]
        pixels = b"".join(images.pixel_values.tobytes() for images in found if not images.is_dummy)
        assert len(pixels) == sum(map(len, units_sent(planner, step)))
        assert [images.is_dummy for images in found].count(True) == (4 if step == 1 else 1)
    assert all(not ticket.encoder_ranks for ticket in planner.loader.tickets)


def test_stream_when_ranks_of_their_own_encode_then_both_together_get_each_unit_once(
    serve: Callable[..., FakePlanner], connect: Callable[..., loadmaster.Stream]
) -> None:
    planner = serve([1, 1, 0])
    ranks = read_all(planner, connect)
    assert [[batch.step for batch in batches] for batches in ranks] == [[0, 1, 2]] * 2
    for step in range(NUM_STEPS):
        found = []
        for rank, batches in enumerate(ranks):
            for images in batches[step].images:
                assert (images.seat.rank, images.is_hybrid) == (rank, True)
                parts = itertools.pairwise(images.patch_offsets.tolist())
                units = [images.pixel_values[a:b].tobytes() for a, b in parts]
                found += [u for u, dp in zip(units, images.encoder_dp.tolist(), strict=True) if dp != NO_DP]
        assert sorted(found) == units_sent(planner, step)
    assert all(ticket.encoder_ranks == [0, 1] for ticket in planner.loader.tickets)
    plans = [query for path, query in planner.requests if path.endswith("/plans")]
    assert {query["encoder_ranks"] for query in plans} == {"0,1"}


def test_stream_when_ranks_of_their_own_encode_then_documents_are_those_without(
    serve: Callable[..., FakePlanner], connect: Callable[..., loadmaster.Stream]
) -> None:
    inline, hybrid = read_all(serve(), connect), read_all(serve([0, 1]), connect)
    for left, right in zip(itertools.chain(*inline), itertools.chain(*hybrid), strict=True):
        for name in ("tokens", "labels"):
            assert np.array_equal(getattr(left, name), getattr(right, name))
        assert left.sample_ids == right.sample_ids
        assert [i.own_tokens for i in left.images] == [i.own_tokens for i in right.images]
