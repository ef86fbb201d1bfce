"""A live run of real processes whose schedule is edited: what the ranks train on is what one process would plan."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import loadmaster
from loadmaster_flight.spec import ScheduleSpec, revised
from loadmaster_server.access import Role
from loadmaster_server.embedded import EmbeddedRun
from support.editing import Editor, token_in
from support.ranks import ids_of

pytestmark = pytest.mark.processes
EDIT_AT, UNTIL = 8, 40


def test_batches_when_the_schedule_is_edited_then_all_ranks_switch_at_its_step(
    frozen: Callable[..., Any], start_cluster: Callable[..., Any]
) -> None:
    """Two ranks wait at step 8 for an edit of weights, G and C; both have prefetched what they please by then."""
    budgets = {"plan_ahead": 30, "bind_ahead": 6, "build_ahead": 3}
    spec, manifests = frozen(until={"steps": UNTIL}, budgets=budgets)
    cluster = start_cluster(spec, manifests, loaders=2, constructors=2)
    editor = Editor(cluster.url, run=spec.run, token=token_in(cluster.state_dir, "ada", Role.PUBLISHER))
    is_there, is_edited = threading.Barrier(3), threading.Event()

    def train(rank: int) -> list[tuple[int, int, list[str]]]:
        seen = []
        with loadmaster.connect(cluster.url, rank=rank, world_size=2, framework="numpy") as stream:
            for batch in stream:
                seen.append((batch.step, batch.tokens.shape[-1], list(batch.sample_ids)))
                if batch.step == EDIT_AT:
                    is_there.wait(60)
                    assert is_edited.wait(60)
        return seen

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(train, rank) for rank in range(2)]
        is_there.wait(60)
        answer = editor.publish({"code": 2.0, "prose": 0.0}, microbatches=4, seq_len=512)
        is_edited.set()
        ranks = [job.result(240) for job in jobs]
    revision = answer.body["revision"]
    switch = revision["from_step"]
    assert EDIT_AT < switch < UNTIL
    expected = []
    with EmbeddedRun(spec, manifests, dp=2) as run:
        while not run.planner.is_over:
            if run.planner.step == switch:
                run.planner.follow(revised(spec, ScheduleSpec.model_validate(revision["schedule"])), 1)
            plan, batches = next(run)
            ids = [ids_of(batches[rank], spec.source_names) for rank in range(2)]
            expected.append((plan.step, plan.seq_len, ids))
    assert [length for _, length, _ in expected] == [256] * switch + [512] * (UNTIL - switch)
    for rank, seen in enumerate(ranks):
        assert seen == [(step, length, ids[rank]) for step, length, ids in expected]
    assert editor.audit() == [("ada", "published", 1)]
