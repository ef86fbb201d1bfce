"""What revisions do to plans: which steps change, on which ranks, and that nothing is lost or repeated by them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster_flight.spec import RunSpec, ScheduleSpec
from loadmaster_flight.wire.control import CreateRunRequest, JoinReply, JoinRequest, RunView, StreamView
from loadmaster_flight.wire.http import PlannerClient
from loadmaster_flight.wire.step_plan import PIECE_COLUMNS, StepPlan, plans_from_bytes
from loadmaster_server.access import Role
from support.editing import Editor, reference, token_in
from support.synthetic import Cluster, FakeLoader, wait_for

MEMBERSHIP = [name for name in PIECE_COLUMNS if name != "bin"]
START = "import sys; from loadmaster_server.cli.planner import main; sys.exit(main(sys.argv[1:]))"
BUDGETS = {"plan_ahead": 40, "bind_ahead": 10, "build_ahead": 2}
MakeRun = Callable[..., CreateRunRequest]


@pytest.fixture
def start(make_cluster: Callable[..., Cluster], make_run: MakeRun, database_url: str) -> Callable[..., Any]:
    """A cluster on either database whose run is planned to step 40, and a person at it."""

    def begin(world_size: int = 1, **spec: Any) -> tuple[Cluster, Editor, RunSpec]:
        cluster = make_cluster(database_url=database_url)
        request = make_run(**({"budgets": BUDGETS} | spec))
        cluster.client.post("/runs", request, RunView)
        cluster.loader()
        cluster.open(world_size)
        is_short = "tokens" in spec.get("until", {})
        wait_for(lambda: _is_planned(cluster, 40) or (is_short and _is_planned(cluster, None)), what="plans")
        return cluster, Editor(cluster.server.url), RunSpec.model_validate(request.spec)

    return begin


def _is_planned(cluster: Cluster, until: int | None) -> bool:
    """To a step, or to the end of the stream; what is read to see it is on the planner's shelf of plans then."""
    view = cluster.client.get("/runs/run/streams/train", StreamView)
    cluster.plans(0, 64)
    return view.is_planned_to_end if until is None else view.planned >= until


def _digests(plans: Sequence[StepPlan]) -> list[str]:
    return [plan.digest for plan in plans]


def _membership(plans: Sequence[StepPlan]) -> list[list[list[int]]]:
    return [sorted(np.stack([getattr(p.pieces, name) for name in MEMBERSHIP], axis=1).tolist()) for p in plans]


def _again(cluster: Cluster, first: int, last: int, revision: int) -> list[StepPlan]:
    """Steps [first, last) as soon as all of them are there under a revision."""

    def found() -> list[StepPlan] | None:
        plans = cluster.plans(first, last, wait_s=1)
        return plans if len(plans) == last - first and plans[-1].revision == revision else None

    plans: list[StepPlan] = wait_for(found, what=f"steps under revision {revision}")
    return plans


def _schedule(editor: Editor) -> ScheduleSpec:
    return ScheduleSpec.model_validate(editor.schedule()["schedule"])


def test_publish_when_plans_are_not_bound_then_replaced_and_bound_ones_stay(start: Callable[..., Any]) -> None:
    cluster, editor, spec = start()
    before = cluster.plans(0, 10, bind=1)
    assert len(before) == 10
    assert editor.publish({"web": 1, "code": 3}).body["revision"]["from_step"] == 10
    after = _again(cluster, 10, 40, 1)
    assert _digests(before) == _digests(cluster.plans(0, 10))
    assert [plan.revision for plan in (*before, *after)] == [0] * 10 + [1] * 30
    assert _digests([*before, *after]) == _digests(reference(spec, 40, [(10, _schedule(editor))]))
    share = sum(p.source_tokens_S[1] for p in after) / sum(p.num_tokens for p in after)
    assert share == pytest.approx(0.75, abs=0.03)


def test_publish_when_ranks_are_at_different_depths_then_all_switch_at_one_step(start: Callable[..., Any]) -> None:
    cluster, editor, _ = start(2)
    assert len(cluster.plans(0, 2, bind=1, dp_ranks="0")) == 2
    assert len(cluster.plans(0, 7, bind=1, dp_ranks="1")) == 7
    assert editor.publish({"web": 1, "code": 3}, seq_len=32).body["revision"]["from_step"] == 7
    _again(cluster, 7, 40, 1)
    for rank, read in (("0", 2), ("1", 7)):
        plans = cluster.plans(read, 20, dp_ranks=rank)
        assert [(p.step, p.revision, p.seq_len) for p in plans] == [
            (step, int(step >= 7), 32 if step >= 7 else 64) for step in range(read, 20)
        ]


def test_publish_when_later_then_steps_before_it_keep_their_plans(start: Callable[..., Any]) -> None:
    cluster, editor, spec = start()
    before = cluster.plans(0, 40)
    assert editor.publish({"web": 1}, at_step=25).body["revision"]["from_step"] == 25
    after = _again(cluster, 25, 40, 1)
    assert _digests(cluster.plans(0, 25)) == _digests(before[:25])
    assert _digests(after) == _digests(reference(spec, 40, [(25, _schedule(editor))])[25:])


def test_publish_when_twice_in_a_second_then_the_newest_rules_and_both_are_written_down(
    start: Callable[..., Any],
) -> None:
    cluster, editor, spec = start()
    cluster.plans(0, 5, bind=1)
    assert editor.publish({"web": 9}, base=0).body["revision"]["from_step"] == 5
    assert editor.publish({"code": 5}, base=1).body["revision"]["from_step"] == 5
    after = _again(cluster, 5, 40, 2)
    assert {plan.revision for plan in after} == {2}
    assert _digests(after) == _digests(reference(spec, 40, [(5, _schedule(editor)), (5, _schedule(editor))])[5:])
    assert editor.audit() == [("ada", "published", 1), ("ada", "published", 2)]
    assert editor.schedule()["timeline"] == [{"from_step": 0, "revision": 0}, {"from_step": 5, "revision": 2}]


def test_publish_when_for_a_past_step_then_nothing_changes(start: Callable[..., Any]) -> None:
    cluster, editor, _ = start()
    cluster.plans(0, 5, bind=1)
    before = cluster.plans(0, 40)
    answer = editor.publish({"web": 9}, at_step=4)
    assert (answer.status, answer.body["details"]) == (409, {"first_free": 5})
    assert editor.publish({"web": 9}, at_step=5).status == 201
    assert _digests(_again(cluster, 5, 40, 1)) != _digests(before[5:])
    assert _digests(cluster.plans(0, 5)) == _digests(before[:5])
    assert editor.audit() == [("ada", "published", 1)]


def test_publish_when_g_and_c_change_then_at_its_step(start: Callable[..., Any]) -> None:
    cluster, editor, spec = start()
    assert editor.publish(microbatches=8, seq_len=128, at_step=12).status == 201
    plans = _again(cluster, 10, 30, 1)
    assert [(p.num_bins, p.seq_len) for p in plans] == [(4, 64)] * 2 + [(8, 128)] * 18
    assert _digests(plans) == _digests(reference(spec, 30, [(12, _schedule(editor))])[10:])


def test_publish_when_a_source_is_retired_then_only_its_queue_is_served(start: Callable[..., Any]) -> None:
    cluster, editor, _ = start()
    before = cluster.plans(0, 20)
    assert editor.publish(retired=["code"], at_step=20).status == 201
    after = _again(cluster, 20, 40, 1)
    assert all(plan.weights_S.tolist() == [1 << 30, 0] for plan in after)
    assert all(plan.source_tokens_S[1] == 0 for plan in after[3:])
    served = [piece for step in _membership([*before, *after]) for piece in step]
    assert len({tuple(piece) for piece in served}) == len(served)


def test_scheduled_when_the_planner_comes_to_its_step_then_a_revision(start: Callable[..., Any]) -> None:
    cluster, editor, spec = start()
    constructor = cluster.constructor()
    scheduled = editor.publish({"web": 1}, at_step=45).body["scheduled"]
    assert len(cluster.plans(0, 10, bind=1)) == 10
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(10)
    plans = wait_for(lambda: p if len(p := cluster.plans(40, 50, wait_s=1)) == 10 else None, what="ten more steps")
    assert [plan.revision for plan in plans] == [0] * 5 + [1] * 5
    (record,) = editor.ask("GET", "/scheduled").body
    assert (record["number"], record["state"], record["revision"]) == (scheduled["number"], "activated", 1)
    assert _digests(plans) == _digests(reference(spec, 50, [(45, _schedule(editor))])[40:])
    assert editor.audit() == [("ada", "scheduled", None), ("ada", "activated", 1)]


def test_publish_when_the_stream_ends_then_refused_after_it_and_planned_anew_before(start: Callable[..., Any]) -> None:
    cluster, editor, _ = start(until={"steps": 40})
    answer = editor.publish({"web": 1}, at_step=40)
    assert (answer.status, answer.body["details"]) == (409, {"end_step": 40})
    assert editor.publish({"web": 1}, at_step=39).status == 201
    last = _again(cluster, 38, 40, 1)
    assert [plan.is_final for plan in last] == [False, True]
    assert cluster.client.get("/runs/run/streams/train", StreamView).is_planned_to_end


def test_end_when_the_last_step_is_not_bound_then_an_edit_may_move_it(start: Callable[..., Any]) -> None:
    """Constructors are not told of an end that is planned and not bound: with half of G it comes later."""
    cluster, editor, spec = start(until={"tokens": 8_000})
    view = cluster.client.get("/runs/run/streams/train", StreamView)
    assert view.is_planned_to_end
    assert (_end(cluster, 0, 5), _end(cluster, 0, 64, bind=0)) == (None, view.planned)
    assert editor.publish(microbatches=2).status == 201
    after = _again(cluster, 5, 40, 1)
    assert _digests(after) == _digests(reference(spec, 40, [(5, _schedule(editor))])[5:])
    assert after[view.planned - 6].step == view.planned - 1
    assert not after[view.planned - 6].is_final


def _end(cluster: Cluster, first: int, last: int, *, bind: int = 1) -> int | None:
    """The stream's end as the answer to a request for plans tells it."""
    path = "/api/v1/runs/run/streams/train/generations/0/plans"
    query = f"first={first}&last={last}&bind={bind}"
    with urllib.request.urlopen(f"{cluster.server.url}{path}?{query}", timeout=30) as answer:
        end = answer.headers.get("x-loadmaster-stream-end")
    return None if end is None else int(end)


def test_evaluation_when_the_schedule_changes_then_its_steps_do_not(start: Callable[..., Any]) -> None:
    cluster, editor, _ = start(evaluation={"held": {"sources": ["code"]}})
    assert editor.publish(microbatches=8, seq_len=128).status == 201
    cluster.open(stream="held")
    plans = wait_for(lambda: cluster.plans(0, 3, stream="held", wait_s=1), what="an evaluation")
    assert {(plan.revision, plan.num_bins, plan.seq_len) for plan in plans} == {(0, 4, 64)}


def test_resume_when_bound_steps_lie_on_both_sides_of_an_edit_then_each_under_its_own(
    start: Callable[..., Any],
) -> None:
    cluster, editor, spec = start()
    cluster.plans(0, 5, bind=1)
    assert editor.publish({"web": 1}).body["revision"]["from_step"] == 5
    _again(cluster, 5, 40, 1)
    before = cluster.plans(0, 10, bind=1)
    reply = cluster.join(nonce="again", step=3, parent=0)
    plans = wait_for(
        lambda: p if len(p := cluster.plans(3, 40, generation=reply.generation, wait_s=1)) == 37 else None, what="plans"
    )
    assert _digests(plans[:7]) == _digests(before[3:])
    assert _digests(plans) == _digests(reference(spec, 40, [(5, _schedule(editor))])[3:])


def test_resume_when_on_another_mesh_then_each_step_is_replayed_under_its_revision(start: Callable[..., Any]) -> None:
    cluster, editor, _ = start()
    cluster.plans(0, 5, bind=1)
    assert editor.publish({"web": 1}).body["revision"]["from_step"] == 5
    _again(cluster, 5, 40, 1)
    before = cluster.plans(0, 10, bind=1)
    assert len(before) == 10
    generation = cluster.open(2, word="again", step=3, parent=0)
    plans = wait_for(
        lambda: p if len(p := cluster.plans(3, 20, generation=generation, wait_s=1)) == 17 else None, what="plans"
    )
    assert [plan.revision for plan in plans] == [0] * 2 + [1] * 15
    assert _membership(plans[:7]) == _membership(before[3:])


def test_resume_when_an_edit_reaches_back_before_a_log_then_the_log_rules(start: Callable[..., Any]) -> None:
    """Generation 1 unbinds steps and changes them; going on from generation 0 later replays what that one had."""
    cluster, editor, _ = start()
    before = cluster.plans(0, 10, bind=1)
    cluster.join(nonce="again", step=2, parent=0, replay=False)
    assert editor.publish({"web": 1}).body["revision"]["from_step"] == 2
    reply = cluster.join(nonce="third", step=6, parent=0)
    plans = wait_for(
        lambda: p if len(p := cluster.plans(6, 20, generation=reply.generation, wait_s=1)) == 14 else None, what="plans"
    )
    assert _digests(plans[:4]) == _digests(before[6:])
    assert [plan.revision for plan in plans] == [0] * 4 + [1] * 10


def test_restart_when_revisions_are_in_force_then_planning_goes_on_equally(start: Callable[..., Any]) -> None:
    cluster, editor, spec = start()
    cluster.plans(0, 6, bind=1)
    assert editor.publish({"web": 1}).status == 201
    _again(cluster, 6, 40, 1)
    cluster.restart()
    constructor = cluster.constructor()
    wait_for(lambda: constructor.assignments, what="an assignment")
    constructor.acknowledge(6)
    plans = _again(cluster, 0, 46, 1)
    assert _digests(plans) == _digests(reference(spec, 46, [(6, _schedule(editor))]))


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Starts planner processes on a port; none outlives the test."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(port: int) -> subprocess.Popen[bytes]:
        ready = tmp_path / f"ready{len(children)}"
        argv = [sys.executable, "-c", START, "--state-dir", str(tmp_path / "state"), "--ready-file", str(ready)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        children.append(subprocess.Popen([*argv, "--port", str(port)], env=environment))
        wait_for(lambda: ready.exists() and ready.read_text(), what="the planner")
        children[-1].port = json.loads(ready.read_text())["url"].rsplit(":", 1)[1]  # type: ignore[attr-defined]
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.wait(30)


@pytest.mark.processes
@pytest.mark.parametrize("has_replanned", [False, True])
def test_edit_when_the_planner_is_killed_then_nothing_is_rewound_repeated_or_lost(
    spawn: Callable[[int], Any], make_run: MakeRun, tmp_path: Path, has_replanned: bool
) -> None:
    request = make_run(budgets=BUDGETS)
    child = spawn(0)
    url = f"http://127.0.0.1:{child.port}"
    client = PlannerClient(url)
    client.post("/runs", request, RunView)
    loader = FakeLoader(url)
    try:
        client.post("/runs/run/streams/train/join", JoinRequest(rank=0, world_size=1, nonce="n"), JoinReply)
        _read(client, 0, 40)
        bound = _read(client, 0, 8, bind=1)
        editor = Editor(url, token=token_in(tmp_path / "state", "ada", Role.PUBLISHER))
        assert editor.publish({"web": 1, "code": 3}).body["revision"]["from_step"] == 8
        if has_replanned:
            _read(client, 0, 40)
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        client.close()
        spawn(int(child.port))
        plans = _read(client, 0, 40)
        audit, schedule = editor.audit(), _schedule(editor)
    finally:
        client.close()
        loader.close()
    spec = RunSpec.model_validate(request.spec)
    unedited = reference(spec, 40)
    assert _digests(plans[:8]) == _digests(bound) == _digests(unedited[:8])
    assert [plan.revision for plan in plans] == [0] * 8 + [1] * 32
    assert _digests(plans) == _digests(reference(spec, 40, [(8, schedule)]))
    served = [tuple(piece) for step in _membership(plans) for piece in step]
    assert len(set(served)) == len(served)
    assert audit == [("ada", "published", 1)]


def _read(client: PlannerClient, first: int, last: int, **query: Any) -> list[StepPlan]:
    path = "/runs/run/streams/train/generations/0/plans"

    def found() -> list[StepPlan] | None:
        data = client.request("GET", path, query={"first": first, "last": last, "wait_s": 1} | query)
        plans = plans_from_bytes(data)
        return plans if len(plans) == last - first else None

    plans: list[StepPlan] = wait_for(found, what=f"steps [{first}, {last})")
    return plans
