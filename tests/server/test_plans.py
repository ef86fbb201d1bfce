"""The plan loop end to end: real HTTP, real Flight, the real planner, synthetic metadata."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RankReport, RunView, StreamView, VerdictReport
from loadmaster_flight.wire.errors import (
    BadRequestError,
    DataError,
    GoneError,
    LoadmasterError,
    NotFoundError,
    RunPausedError,
    UnavailableError,
)
from loadmaster_flight.wire.schemas import Verdict
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, StepPlan
from loadmaster_server.plans import PlanService
from loadmaster_server.plans.query import PlanQuery
from loadmaster_server.store import GenerationKey
from support.synthetic import LANES, ROWS, UNITS, Cluster, wait_for

MakeRun = Callable[..., CreateRunRequest]
ONE_EPOCH = {"until": {"epochs": 1}}
ON_BOTH = pytest.mark.parametrize(
    "cluster", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], request: pytest.FixtureRequest) -> Cluster:
    """A planner on SQLite, or on the database that the test names."""
    on_postgres = getattr(request, "param", "sqlite") == "postgres"
    return make_cluster(database_url=request.getfixturevalue("postgres_url") if on_postgres else "")


@pytest.fixture
def start(cluster: Cluster, make_run: MakeRun) -> Callable[..., Cluster]:
    """A cluster with an open run and some loaders."""

    def begin(
        world_size: int = 1, *, loaders: int = 1, alter: Callable[..., Any] | None = None, **spec: Any
    ) -> Cluster:
        cluster.client.post("/runs", make_run(**spec), RunView)
        for _ in range(loaders):
            cluster.loader(**({"alter": alter} if alter else {}))
        cluster.open(world_size)
        return cluster

    return begin


def _view(cluster: Cluster, stream: str = "train") -> StreamView:
    return cluster.client.get(f"/runs/run/streams/{stream}", StreamView)


def _pieces(plan: StepPlan) -> list[tuple[int, ...]]:
    columns = [getattr(plan.pieces, name).tolist() for name in PIECE_COLUMNS if name != "bin"]
    return sorted(zip(*columns, strict=True))


def _error_of(cluster: Cluster, first: int, last: int) -> LoadmasterError | None:
    """What a request for plans is answered with."""
    try:
        cluster.plans(first, last, bind=1)
    except LoadmasterError as error:
        return error
    return None


def test_plans_when_loaders_differ_in_number_then_the_same_digests(
    make_cluster: Callable[..., Cluster], make_run: MakeRun, tmp_path: Any
) -> None:
    digests = []
    for num_loaders in (1, 3):
        cluster = make_cluster()
        run = make_run(f"run{num_loaders}")
        cluster.client.post("/runs", run, RunView)
        loaders = [cluster.loader() for _ in range(num_loaders)]
        wait_for(lambda loaders=loaders: all(loader.leases for loader in loaders), what="leases")
        cluster.open(run=f"run{num_loaders}")
        store = cluster.server.planner.store
        view = f"/runs/run{num_loaders}/streams/train"
        wait_for(lambda view=view, c=cluster: c.client.get(view, StreamView).planned >= 12, what="12 steps")
        key = store.generations.current()[-1].key
        digests.append(store.plans.digests(replace(key, run=f"run{num_loaders}"), 0, 12))
        cluster.server.stop()
    assert digests[0] == digests[1]
    assert len(digests[0]) == 12


def test_plans_when_nobody_acknowledges_then_planned_to_the_horizon_only(start: Callable[..., Cluster]) -> None:
    cluster = start()
    plans = cluster.planned(12)
    assert [plan.step for plan in plans] == list(range(12))
    assert cluster.plans(12, 14, wait_s=0.3) == []
    assert _view(cluster).planned == 12


def test_plans_when_binding_then_at_most_bind_ahead_beyond_the_acknowledged(start: Callable[..., Cluster]) -> None:
    cluster = start()
    constructor = cluster.constructor()
    cluster.planned(12)
    assert [plan.step for plan in cluster.plans(0, 12, bind=1)] == [0, 1, 2, 3]
    assert cluster.plans(4, 12, bind=1, wait_s=0.1) == []
    assert _view(cluster).bound == 4
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(3)
    assert [plan.step for plan in cluster.plans(4, 12, bind=1, wait_s=20)] == [4, 5, 6]
    view = _view(cluster)
    assert (view.acknowledged, view.bound) == (3, 7)
    wait_for(lambda: _view(cluster).planned == 15, what="planning to go on")


def test_plans_when_not_binding_then_nothing_is_bound(start: Callable[..., Cluster]) -> None:
    cluster = start()
    cluster.planned(12)
    assert _view(cluster).bound == 0


def test_plans_when_sliced_then_parts_make_the_whole(start: Callable[..., Cluster]) -> None:
    cluster = start(2)
    whole = cluster.planned(3)
    by_rank = [cluster.plans(0, 3, dp_ranks=str(rank)) for rank in (0, 1)]
    by_lane = [cluster.plans(0, 3, partitions=f"0:{k}:2,1:{k}:2") for k in (0, 1)]
    for parts in (by_rank, by_lane):
        for plan, *slices in zip(whole, *parts, strict=True):
            assert {part.digest for part in slices} == {plan.digest}
            assert sorted(piece for part in slices for piece in _pieces(part)) == _pieces(plan)
    assert all((part.pieces.bin // 2 == 1).all() for part in by_rank[1])
    assert all((part.pieces.lane % 2 == 1).all() for part in by_lane[1])
    both = cluster.plans(0, 1, partitions="0:0:2,0:1:2")[0]
    assert _pieces(both) == [piece for piece in _pieces(whole[0]) if piece[0] == 0]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"first": 3, "last": 1}, "first and last must be ordered"),
        ({"first": -1, "last": 1}, "first and last must be ordered"),
        ({"first": 0, "last": 1, "wait_s": -1}, "wait_s must be at least 0"),
        ({"first": 0, "last": 1, "wait_s": "nan"}, "wait_s"),
        ({"first": 0, "last": 1, "dp_ranks": "0,x"}, "dp_ranks must hold whole numbers"),
        ({"first": 0, "last": 1, "dp_ranks": "0", "encoder_ranks": "-1"}, "encoder_ranks must hold whole numbers"),
        ({"first": 0, "last": 1, "encoder_ranks": "0"}, "encoder_ranks must come with dp_ranks"),
        ({"first": 0, "last": 1, "partitions": "0:1"}, "partitions must be source:k:P"),
        ({"first": 0, "last": 1, "partitions": "0:2:2"}, "partitions must be source:k:P with k < P"),
    ],
)
def test_plans_when_query_is_wrong_then_bad_request(
    start: Callable[..., Cluster], query: dict[str, Any], says: str
) -> None:
    cluster = start()
    with pytest.raises(BadRequestError, match=says):
        cluster.plans(**query)


@ON_BOTH
def test_plans_when_stream_is_finite_then_each_sample_once_and_the_end_is_known(start: Callable[..., Cluster]) -> None:
    cluster = start(evaluation={"held_out": {"sources": ["code"]}}, budgets={"plan_ahead": 500})
    cluster.open(stream="held_out", word="e")
    wait_for(lambda: _view(cluster, "held_out").is_planned_to_end, what="the end of the pass")
    end = _view(cluster, "held_out").planned
    plans = [plan for first in range(0, end, 64) for plan in cluster.plans(first, first + 64, stream="held_out")]
    assert [plan.is_final for plan in plans] == [False] * (end - 1) + [True]
    samples = [piece for plan in plans for piece in _pieces(plan)]
    assert len({piece[3:6] for piece in samples}) == len(samples) == LANES * UNITS * ROWS
    assert cluster.plans(end, end + 1, stream="held_out", wait_s=20) == []


def test_plans_when_end_is_known_then_header_and_etag(start: Callable[..., Cluster]) -> None:
    cluster = start(until={"steps": 5})
    cluster.planned(5)
    host, port = cluster.server.url.removeprefix("http://").split(":")
    path = "/api/v1/runs/run/streams/train/generations/0/plans?first=3&last=9"
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["x-loadmaster-stream-end"]) == (200, "5")
    assert len(answer.read()) > 0
    connection.request("GET", path, headers={"if-none-match": answer.headers["etag"]})
    again = connection.getresponse()
    assert (again.status, again.read()) == (304, b"")
    connection.close()


def test_stream_when_all_is_acknowledged_then_ended(start: Callable[..., Cluster]) -> None:
    cluster = start(until={"steps": 3})
    constructor = cluster.constructor()
    cluster.planned(3)
    cluster.plans(0, 3, bind=1)
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(3)
    wait_for(lambda: _view(cluster).state == "ended", what="the end")
    wait_for(lambda: constructor.released and constructor.released[0].step == 3, what="the release")
    assert sum(_view(cluster).source_tokens) == sum(plan.num_tokens for plan in cluster.plans(0, 3))


def test_acknowledged_when_a_rank_has_moved_then_the_word_of_its_last_constructor_counts(
    start: Callable[..., Cluster],
) -> None:
    cluster = start(2)
    last, now = cluster.constructor(), cluster.constructor()
    cluster.planned(4)
    cluster.plans(0, 4, bind=1)
    wait_for(lambda: [[a.ranks for a in c.assignments] for c in (last, now)] == [[[0]], [[1]]], what="assignments")
    last.ranks = RankReport(ranks=[0, 1], acknowledged=[3, 4], seen_s=[0.0, 0.0], moved_s=[0.0, 0.0])
    wait_for(lambda: _view(cluster).acknowledged == 3, what="the acknowledgement")


def test_acknowledged_when_it_could_not_be_stored_then_a_later_heartbeat_stores_it(
    start: Callable[..., Cluster],
) -> None:
    cluster = start()
    constructor = cluster.constructor()
    cluster.planned(4)
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(4)
    wait_for(lambda: [word.step for word in constructor.released] == [4], what="the planner to have heard of it")
    assert _view(cluster).acknowledged == 0
    cluster.plans(0, 4, bind=1)
    wait_for(lambda: _view(cluster).acknowledged == 4, what="the acknowledgement")


def test_acknowledged_when_one_constructor_is_silent_then_the_least_counts(start: Callable[..., Cluster]) -> None:
    cluster = start(2)
    quick, slow = cluster.constructor(), cluster.constructor()
    cluster.planned(4)
    cluster.plans(0, 4, bind=1)
    wait_for(lambda: [[a.ranks for a in c.assignments] for c in (quick, slow)] == [[[0]], [[1]]], what="assignments")
    quick.acknowledge(4)
    slow.acknowledge(2)
    wait_for(lambda: _view(cluster).acknowledged == 2, what="the slower one to count")
    quick.acknowledge(3)
    slow.kill()
    wait_for(lambda: _view(cluster).acknowledged == 3, what="the ranks to move and to be heard of")
    assert quick.assignments[0].ranks == [0, 1]


def test_plans_when_no_loader_is_there_then_the_view_names_the_source(start: Callable[..., Cluster]) -> None:
    cluster = start(loaders=0)
    wait_for(lambda: "no loader is there" in _view(cluster).reason, what="the reason")
    assert _view(cluster).state == "open"
    cluster.loader()
    cluster.planned(12)
    assert _view(cluster).reason == ""


def test_plans_when_a_loader_dies_then_the_other_one_measures_on(start: Callable[..., Cluster]) -> None:
    cluster = start(loaders=0)
    stays, dies = cluster.loader(), cluster.loader()
    constructor = cluster.constructor()
    cluster.planned(12)
    wait_for(lambda: constructor.assignments, what="an assignment")
    dies.kill()
    for step in range(0, 40, 4):
        wait_for(lambda step=step: len(cluster.plans(step, step + 4, bind=1, wait_s=1)) == 4, what="four plans")
        constructor.acknowledge(step + 4)
        wait_for(lambda step=step: _view(cluster).acknowledged == step + 4, what="the acknowledgement")
    assert {source for source, _ in stays.asked} == {0, 1}


def test_plans_when_too_many_rows_are_bad_then_paused_and_resumable(start: Callable[..., Cluster]) -> None:
    def spoil(row: dict[str, Any]) -> dict[str, Any]:
        is_bad = row["source"] == 1 and row["epoch"] == 0 and row["pos"] < 8
        return row | ({"verdict": Verdict.BAD, "reason": "broken", "num_tokens": 0} if is_bad else {})

    cluster = start(alter=spoil, budgets={"plan_ahead": 40, "bind_ahead": 40})
    wait_for(lambda: _view(cluster).state == "paused", what="the pause")
    view = cluster.client.get("/runs/run", RunView)
    assert view.state == "paused"
    assert "source code" in view.reason
    assert view.reason.endswith("loadmaster resume PLANNER_URL --run run")
    planned = _view(cluster).planned
    if planned:
        assert len(cluster.plans(0, planned, bind=1)) == planned
    with pytest.raises(RunPausedError, match="source code"):
        cluster.plans(planned, planned + 1, bind=1, wait_s=20)
    cluster.client.request("POST", "/runs/run/resume")
    wait_for(lambda: _view(cluster).planned > planned, what="planning to go on")


def test_plans_when_a_pause_was_resumed_and_the_ranks_join_again_then_it_does_not_stop_them(
    start: Callable[..., Cluster],
) -> None:
    def spoil(row: dict[str, Any]) -> dict[str, Any]:
        is_bad = row["source"] == 1 and row["epoch"] == 0 and row["pos"] < 8
        return row | ({"verdict": Verdict.BAD, "reason": "broken", "num_tokens": 0} if is_bad else {})

    cluster = start(alter=spoil, budgets={"plan_ahead": 40, "bind_ahead": 40})
    wait_for(lambda: _view(cluster).state == "paused", what="the pause")
    planned = _view(cluster).planned
    cluster.client.request("POST", "/runs/run/resume")
    wait_for(lambda: _view(cluster).planned > planned, what="planning to go on")
    generation = cluster.open(1, word="again")
    wait_for(lambda: cluster.plans(planned, planned + 1, generation=generation, wait_s=1), what="the step of the pause")


def test_plans_when_one_pause_follows_another_in_a_step_then_each_is_resumed_once(
    start: Callable[..., Cluster],
) -> None:
    def spoil(row: dict[str, Any]) -> dict[str, Any]:
        is_bad = row["source"] == 1 and row["epoch"] == 0 and row["pos"] < 30
        return row | ({"verdict": Verdict.BAD, "reason": "broken", "num_tokens": 0} if is_bad else {})

    cluster = start(alter=spoil, budgets={"plan_ahead": 40, "bind_ahead": 40})
    planned = wait_for(lambda: v if (v := _view(cluster)).state == "paused" else None, what="the pause").planned
    for _ in range(LANES * 30):
        if _view(cluster).planned > planned:
            return
        cluster.client.request("POST", "/runs/run/resume")
        wait_for(lambda: (v := _view(cluster)).state == "paused" or v.planned > planned, what="the next pause")
    raise AssertionError("it never went on")


def test_plans_when_every_row_is_skipped_then_failed_with_the_source(start: Callable[..., Cluster]) -> None:
    def skip(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"verdict": Verdict.SKIPPED, "reason": "empty", "num_tokens": 0}

    cluster = start(alter=skip)
    error = wait_for(lambda: _error_of(cluster, 0, 1), what="the failure")
    assert isinstance(error, DataError)
    assert "source" in error.message
    assert cluster.client.get("/runs/run", RunView).state == "failed"


@ON_BOTH
def test_verdicts_when_rows_are_skipped_then_journaled_once_over_all_epochs(start: Callable[..., Cluster]) -> None:
    def skip(row: dict[str, Any]) -> dict[str, Any]:
        is_skipped = row["pos"] == 0
        return row | ({"verdict": Verdict.SKIPPED, "reason": "empty", "num_tokens": 0} if is_skipped else {})

    cluster = start(alter=skip, until={"epochs": 2}, budgets={"plan_ahead": 1000})
    wait_for(lambda: _view(cluster).is_planned_to_end, what="two epochs")
    assert cluster.server.planner.store.plans.num_verdicts("run") == 2 * LANES * UNITS


def test_verdicts_when_the_run_goes_on_then_rows_that_measure_well_now_stay_out(start: Callable[..., Cluster]) -> None:
    is_repaired = threading.Event()

    def skip(row: dict[str, Any]) -> dict[str, Any]:
        is_skipped = row["pos"] == 0 and not is_repaired.is_set()
        return row | ({"verdict": Verdict.SKIPPED, "reason": "empty", "num_tokens": 0} if is_skipped else {})

    cluster = start(2, alter=skip)
    before = cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    is_repaired.set()
    generation = cluster.open(2, word="b", step=0, parent=0)
    after = wait_for(lambda: p if len(p := cluster.plans(0, 12, generation=generation)) == 12 else None, what="plans")
    assert [plan.digest for plan in after] == [plan.digest for plan in before]


def test_plans_when_samples_are_masked_then_the_step_says_so_under_another_etag(
    start: Callable[..., Cluster],
) -> None:
    cluster = start()
    before = cluster.planned(3)
    report = VerdictReport(
        stream="train", generation=0, step=1, source=0, epoch=0, shard=0, block=0, row=3, reason="cut short"
    )
    service = PlanService(cluster.server.planner.store)
    key, query = GenerationKey(run="run", stream="train", generation=0), PlanQuery(first=0, last=3)
    etag = service.read(key, query).etag
    cluster.client.request("POST", "/runs/run/verdicts", body=report)
    after = cluster.plans(0, 3)
    assert [plan.masked for plan in after] == [(), ((0, 0, 0, 0, 3),), ()]
    assert [plan.digest for plan in after] == [plan.digest for plan in before]
    assert service.read(key, query).etag != etag


@ON_BOTH
def test_counts_when_an_epoch_is_planned_through_then_kept(start: Callable[..., Cluster]) -> None:
    def skip(row: dict[str, Any]) -> dict[str, Any]:
        is_skipped = row["pos"] == 0
        return row | ({"verdict": Verdict.SKIPPED, "reason": "empty", "num_tokens": 0} if is_skipped else {})

    cluster = start(alter=skip, until={"epochs": 1}, budgets={"plan_ahead": 1000})
    wait_for(lambda: _view(cluster).is_planned_to_end, what="an epoch")

    def sources() -> list[dict[str, Any]]:
        return list(json.loads(cluster.client.request("GET", "/runs/run/sources")))

    found = wait_for(lambda: s if all((s := sources())[i]["epoch_tokens"] for i in (0, 1)) else None, what="counts")
    num_rows = LANES * UNITS * ROWS
    assert [source["num_rows"] for source in found] == [num_rows] * 2
    assert [source["epoch_samples"] for source in found] == [num_rows - LANES * UNITS] * 2
    pages = [cluster.plans(first, first + 64) for first in range(0, _view(cluster).planned, 64)]
    served = sum(plan.source_tokens_S for page in pages for plan in page)
    assert [source["epoch_tokens"] for source in found] == served.tolist()


def test_verdict_report_when_step_is_planned_then_journaled(start: Callable[..., Cluster]) -> None:
    cluster = start()
    cluster.planned(2)
    report = VerdictReport(
        stream="train", generation=0, step=1, source=0, epoch=0, shard=0, block=0, row=3, reason="cut short"
    )
    for _ in range(2):
        cluster.client.request("POST", "/runs/run/verdicts", body=report)
    assert cluster.server.planner.store.plans.num_verdicts("run") == 1
    with pytest.raises(BadRequestError, match="step must be planned"):
        cluster.client.request("POST", "/runs/run/verdicts", body=replace(report, step=999))
    with pytest.raises(NotFoundError, match=r"source must be in \[0, 2\)"):
        cluster.client.request("POST", "/runs/run/verdicts", body=replace(report, source=5))


@ON_BOTH
def test_generation_when_resumed_on_the_same_mesh_then_equal_plans(start: Callable[..., Cluster]) -> None:
    cluster = start(2)
    before = cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    generation = cluster.open(2, word="b", step=3, parent=0)
    after = wait_for(lambda: p if len(p := cluster.plans(3, 12, generation=generation)) == 9 else None, what="plans")
    assert [plan.digest for plan in after] == [plan.digest for plan in before[3:]]
    with pytest.raises(BadRequestError, match="first must be at least 3"):
        cluster.plans(2, 4, generation=generation)
    with pytest.raises(GoneError):
        cluster.plans(3, 4, generation=0)


def test_generation_when_resumed_on_another_mesh_then_the_same_membership(start: Callable[..., Cluster]) -> None:
    cluster = start(2)
    before = cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    generation = cluster.open(4, word="b", step=2, parent=0)
    after = wait_for(lambda: p if len(p := cluster.plans(2, 12, generation=generation)) == 10 else None, what="plans")
    assert [_pieces(plan) for plan in after] == [_pieces(plan) for plan in before[2:]]
    assert {plan.dp for plan in after} == {4}
    assert all(np.ptp(np.bincount(plan.pieces.bin, minlength=4)) >= 0 for plan in after)


def test_generation_when_resumed_at_the_end_then_it_is_over_at_once(start: Callable[..., Cluster]) -> None:
    cluster = start(until={"steps": 4})
    cluster.planned(4)
    cluster.plans(0, 4, bind=1)
    generation = cluster.open(word="b", step=4, parent=0)
    wait_for(lambda: _view(cluster).is_planned_to_end, what="the end")
    assert cluster.plans(4, 5, generation=generation, wait_s=20) == []
    assert _view(cluster).planned == 4


def test_generation_when_data_changed_then_failed_and_said_so(start: Callable[..., Cluster]) -> None:
    is_changed = threading.Event()

    def alter(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"num_tokens": row["num_tokens"] + 1} if is_changed.is_set() else row

    cluster = start(alter=alter)
    cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    is_changed.set()
    cluster.open(2, word="b", step=3, parent=0)
    wait_for(lambda: _view(cluster).state == "failed", what="the failure")
    assert "comes out otherwise than it was planned before" in _view(cluster).reason


@ON_BOTH
def test_restart_when_a_generation_is_open_then_goes_on_in_it(start: Callable[..., Cluster]) -> None:
    cluster = start(2)
    constructor = cluster.constructor()
    before = cluster.planned(12)
    cluster.plans(0, 4, bind=1)
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(2)
    wait_for(lambda: _view(cluster).planned == 14, what="planning to go on")
    number = constructor.link.actor_id
    cluster.restart()
    assert cluster.join(rank=1, world_size=2, nonce="n1").generation == 0
    assert _view(cluster).acknowledged == 2
    assert [plan.digest for plan in cluster.plans(0, 12)] == [plan.digest for plan in before]
    constructor.acknowledge(4)
    wait_for(lambda: _view(cluster).planned == 16, what="planning to go on after the restart")
    assert constructor.link.actor_id == number
    cluster.open(2, word="b")
    fresh = wait_for(lambda: p if len(p := cluster.plans(0, 12, generation=1)) == 12 else None, what="a fresh start")
    assert [plan.digest for plan in fresh] == [plan.digest for plan in before]


def test_stop_when_long_polls_are_open_then_quick(start: Callable[..., Cluster]) -> None:
    cluster = start(loaders=0)
    ended = threading.Event()

    def poll() -> None:
        try:
            cluster.plans(0, 1, wait_s=20)
        except UnavailableError:
            pass
        cluster.client.close()
        ended.set()

    threading.Thread(target=poll).start()
    topic = "run/train"
    wait_for(lambda: cluster.server.planner.store.bulletin.seen(topic) > 0, what="the stream to open")
    cluster.server.stop()
    assert ended.wait(60)
