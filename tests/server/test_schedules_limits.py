"""Schedules that no run can have: refused in a sentence, whatever was sent; and the way back from one that it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView
from loadmaster_flight.wire.errors import UnavailableError
from support.editing import Editor
from support.synthetic import Cluster, wait_for

MakeRun = Callable[..., CreateRunRequest]
FAR, HUGE = 1 << 53, 10**400
SHORT_BYTES = 8_000
IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"weights": {"web": HUGE}}, "weights.web.knots.0.value: Input should be a finite number"),
    ({"weights": {"web": float("nan")}}, "weights.web.knots.0.value: Input should be a finite number, got nan"),
    ({"weights": {"web": "inf"}}, "weights.web.knots.0.value: Input should be a finite number, got inf"),
    ({"weights": {"web": 1e308}}, f"weights.web.knots.0.value: Input should be less than {FAR}"),
    ({"weights": {"web": -1}}, "weights.web.knots.0.value: Input should be greater than or equal to 0, got -1.0"),
    ({"weights": {"web": []}}, "weights.web: must have at least 1 item"),
    ({"weights": {"web": [{"at": HUGE, "value": 1}]}}, f"knots.0.at: Input should be less than {FAR}"),
    ({"weights": {"web": [{"at": 0.5, "value": 1}]}}, "knots.0.at: Input should be a valid integer"),
    ({"weights": {'we"b%s<b>': 1}}, "String should match pattern"),
    ({"weights": {"w" * 100_000: 1}}, "String should match pattern"),
    ({"retired": [f"r{i}" for i in range(10_000)]}, "at most 10000 knots and retired sources in all, got 10004"),
    ({"weights": {"web": [{"at": i, "value": 1} for i in range(10_001)]}}, "at most 10000 knots"),
]


@pytest.fixture
def editor(make_cluster: Callable[..., Cluster], make_run: MakeRun) -> Editor:
    """A person at a run that nobody has joined."""
    cluster = make_cluster()
    cluster.client.post("/runs", make_run(), RunView)
    return Editor(cluster.server.url)


def test_schedule_when_no_run_can_have_it_then_every_route_names_field_and_rule(editor: Editor) -> None:
    schedule = editor.schedule()["schedule"]
    for fields, says in IMPOSSIBLE:
        body = {"schedule": schedule | fields}
        answers = [
            editor.ask("PUT", "/drafts/ada", body | {"base": 0}),
            editor.ask("POST", "/preview", body | {"until_step": 100}),
            editor.ask("POST", "/revisions", body | {"author": "ada", "message": "m"}, if_match=0),
        ]
        for answer in answers:
            assert (answer.status, answer.body["code"]) == (400, "BAD_REQUEST"), says
            assert says in answer.body["detail"]
            assert len(answer.body["detail"]) < SHORT_BYTES
            assert "after validation" not in answer.body["detail"], "a knot that is wrong is not missing, too"
    assert editor.schedule()["revision"] == 0
    assert editor.ask("GET", "/drafts").body == []


def test_schedule_when_a_microbatch_would_not_fit_its_positions_then_refused(editor: Editor) -> None:
    answer = editor.publish(seq_len=1 << 31)
    assert (answer.status, answer.body["code"]) == (422, "BAD_SPEC")
    assert "seq_len * rows must be less than 2147483648" in answer.body["detail"]


def test_schedule_when_many_sources_are_unknown_then_the_answer_is_short(editor: Editor) -> None:
    answer = editor.publish({f"s{i}": 1 for i in range(400)})
    assert answer.status == 422
    assert answer.body["detail"].endswith("; and 392 more")
    assert len(answer.body["detail"]) < SHORT_BYTES


def test_preview_when_a_curve_has_thousands_of_knots_then_answered(editor: Editor) -> None:
    knots = [{"at": 2 * i, "value": 1 + i % 3, "shape": "cosine"} for i in range(9_000)]
    schedule = editor.schedule()["schedule"] | {"weights": {"web": knots, "code": 1}}
    answer = editor.ask("POST", "/preview", {"schedule": schedule, "until_step": FAR - 1})
    assert answer.status == 200
    assert editor.publish({"web": knots}).body["revision"]["revision"] == 1


def test_preview_when_steps_grow_at_once_then_warned(editor: Editor) -> None:
    schedule = editor.schedule()["schedule"] | {"seq_len": 64_000}
    answer = editor.ask("POST", "/preview", {"schedule": schedule, "until_step": 100})
    assert "a step grows from 256 to 256,000 tokens at step 0" in answer.body["warnings"]


def test_restore_when_the_planner_is_at_a_step_without_end_then_it_lets_go_of_it(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    """Sixteen million tokens a microbatch: the step would be drawn for hours."""
    cluster = make_cluster()
    cluster.client.post("/runs", make_run(), RunView)
    loader, editor = cluster.loader(), Editor(cluster.server.url)
    cluster.open()
    cluster.planned(4)
    assert editor.publish(seq_len=1 << 24).status == 201
    seen = len(loader.asked)
    wait_for(lambda: len(loader.asked) > seen + 8, what="the planner to be at that step")
    body = {"author": "ada", "message": "back"}
    assert editor.ask("POST", "/revisions/0/restore", body, if_match=1).status == 201
    assert cluster.planned(8)[-1].revision == 2


def test_retire_when_nobody_serves_the_source_then_the_planner_waits_for_it_no_more(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    def without_web(row: dict[str, Any]) -> dict[str, Any]:
        if row["source"] == 0:
            raise UnavailableError("the disk of web is gone")
        return row

    cluster = make_cluster()
    cluster.client.post("/runs", make_run(), RunView)
    cluster.loader(alter=without_web)
    editor = Editor(cluster.server.url)
    cluster.open()
    stream = "/streams/train"
    wait_for(lambda: "disk of web" in editor.ask("GET", stream).body["reason"], what="the planner to wait for web")
    assert editor.publish(retired=["web"]).body["revision"]["from_step"] == 0
    assert {plan.revision for plan in cluster.planned(4)} == {1}


def test_publish_when_the_run_ends_before_its_step_then_refused_and_not_left_waiting(
    make_cluster: Callable[..., Cluster], make_run: MakeRun
) -> None:
    cluster = make_cluster()
    cluster.client.post("/runs", make_run(until={"steps": 50}), RunView)
    editor = Editor(cluster.server.url)
    answer = editor.publish({"web": 9}, at_step=50)
    assert (answer.status, answer.body["details"]) == (409, {"end_step": 50})
    assert "the run ends before step 50" in answer.body["detail"]
    assert editor.publish({"web": 9}, at_step=49).body["scheduled"]["at_step"] == 49
    assert editor.ask("POST", "/scheduled/1/retime", {"author": "ada", "at_step": 60}).body["details"] == {
        "end_step": 50
    }
    assert [row["at_step"] for row in editor.schedule()["scheduled"]] == [49]


def test_routes_when_asked_for_what_no_store_can_hold_then_refused_on_each(
    make_cluster: Callable[..., Cluster], make_run: MakeRun, database_url: str
) -> None:
    """PostgreSQL refuses NUL and numbers beyond its columns, SQLite does not: people are told the same of neither."""
    cluster = make_cluster(database_url=database_url)
    cluster.client.post("/runs", make_run(), RunView)
    editor, far = Editor(cluster.server.url), 10**20
    act = {"author": "ada", "message": "m"}
    refused = [
        editor.ask("GET", "/overview?stream=a%00b"),
        editor.ask("GET", f"/checkpoints?before={far}"),
        editor.ask("GET", f"/verify?generation={far}"),
        editor.ask("GET", "/drafts/%00"),
        editor.ask("GET", "/drafts/a%00b"),
        editor.ask("DELETE", f"/scheduled/{far}"),
        editor.ask("POST", f"/scheduled/{far}/retime", {"author": "ada", "at_step": 99}),
        editor.ask("POST", f"/revisions/{far}/restore", act, if_match=0),
        editor.ask("POST", "/schedule/hold", act | {"message": "a\x00b"}),
        Editor(cluster.server.url, run="a%00b").ask("GET", "/schedule"),
    ]
    assert {answer.status for answer in refused} <= {400, 404}
    assert editor.audit() == []
