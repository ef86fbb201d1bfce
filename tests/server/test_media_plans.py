"""Plans of a run with images: who encodes them is in the log, and comes out again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView, StreamView
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, StepPlan
from loadmaster_server.store import GenerationKey, VerdictKind
from support.synthetic import Cluster, wait_for

Alter = Callable[[dict[str, Any]], dict[str, Any]]
KEY = GenerationKey(run="run", stream="train", generation=0)
MEDIA = {"media": {"vision": {}}, "strategy": "vlm_hybrid"}


def _with_images(row: dict[str, Any]) -> dict[str, Any]:
    """Two of three samples have up to three images; those of `code` at pos 1 are longer than a microbatch."""
    pos = row["pos"]
    if pos % 3 == 0:
        return row
    is_long = (row["source"], pos) == (1, 1)
    patches = [64 + 16 * i for i in range(pos % 4)]
    return row | {"image_patches": patches, "num_tokens": 65 if is_long else row["num_tokens"]}


@pytest.fixture
def start(make_cluster: Callable[..., Cluster], make_run: Callable[..., CreateRunRequest]) -> Callable[..., Cluster]:
    """A cluster with an open run of images and a loader."""

    def begin(world_size: int = 2, *, alter: Alter = _with_images) -> Cluster:
        cluster = make_cluster()
        source = {"transform": {"text": "text", "image": "image"}}
        cluster.client.post("/runs", make_run(source=source, **MEDIA), RunView)
        cluster.loader(alter=alter)
        cluster.open(world_size)
        return cluster

    return begin


def _membership(plan: StepPlan) -> list[list[int]]:
    columns = [getattr(plan.pieces, name) for name in PIECE_COLUMNS if name != "bin"]
    return np.stack([*columns, np.bincount(plan.units.piece_U, minlength=len(plan.pieces))]).tolist()


def _after(cluster: Cluster, first: int, last: int, generation: int) -> list[StepPlan]:
    num = last - first
    plans = lambda: cluster.plans(first, last, generation=generation)  # noqa: E731
    return wait_for(lambda: found if len(found := plans()) == num else None, what="plans")


def test_plans_when_images_are_distributed_then_every_unit_has_a_rank_in_every_slice(
    start: Callable[..., Cluster],
) -> None:
    cluster = start()
    whole = cluster.planned(3)
    by_encoder = [cluster.plans(0, 3, dp_ranks="0", encoder_ranks=str(rank)) for rank in (0, 1)]
    for plan, *parts in zip(whole, *by_encoder, strict=True):
        expected = [pos % 4 if pos % 3 else 0 for pos in plan.pieces.pos.tolist()]
        assert np.bincount(plan.units.piece_U, minlength=len(plan.pieces)).tolist() == expected
        assert set(plan.units.rank_U.tolist()) == {0, 1}
        mine = [int((part.units.rank_U == rank).sum()) for rank, part in enumerate(parts)]
        assert mine == np.bincount(plan.units.rank_U, minlength=2).tolist()
        assert all(part.is_hybrid for part in parts)


def test_plans_when_resumed_on_the_same_mesh_then_images_go_where_they_went(start: Callable[..., Cluster]) -> None:
    cluster = start()
    before = cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    generation = cluster.open(2, word="b", step=3, parent=0)
    after = _after(cluster, 3, 12, generation)
    assert [plan.digest for plan in after] == [plan.digest for plan in before[3:]]
    assert [plan.units.rank_U.tolist() for plan in after] == [plan.units.rank_U.tolist() for plan in before[3:]]


def test_plans_when_resumed_on_another_mesh_then_the_same_images_on_other_ranks(start: Callable[..., Cluster]) -> None:
    cluster = start()
    before = cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    generation = cluster.open(4, word="b", step=2, parent=0)
    after = _after(cluster, 2, 12, generation)
    assert [_membership(plan) for plan in after] == [_membership(plan) for plan in before[2:]]
    assert {rank for plan in after for rank in plan.units.rank_U.tolist()} == {0, 1, 2, 3}


def test_sample_when_it_has_images_and_is_too_long_then_the_journal_says_why(start: Callable[..., Cluster]) -> None:
    cluster = start()
    plans = cluster.planned(12)
    assert all(not ((plan.pieces.source == 1) & (plan.pieces.pos == 1)).any() for plan in plans)
    found = cluster.server.planner.store.verdicts.left_out(KEY.stream_key)
    reasons = {(verdict.kind, verdict.reason) for verdict, _ in found}
    assert reasons == {(VerdictKind.OVER_LONG, "longer than a microbatch, and media cannot be cut")}


def test_generation_when_samples_have_other_images_then_it_fails_on_another_mesh_too(
    start: Callable[..., Cluster],
) -> None:
    is_changed = threading.Event()

    def alter(row: dict[str, Any]) -> dict[str, Any]:
        row = _with_images(row)
        return row | {"image_patches": row["image_patches"][1:]} if is_changed.is_set() and row["pos"] % 3 else row

    cluster = start(alter=alter)
    cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    is_changed.set()
    cluster.open(4, word="b", step=3, parent=0)
    view = lambda: cluster.client.get("/runs/run/streams/train", StreamView)  # noqa: E731
    wait_for(lambda: view().state == "failed", what="the failure")
    assert "comes out otherwise than it was planned before" in view().reason
