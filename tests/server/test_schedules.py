"""Revisions over HTTP: what is accepted, what is refused and with what, and what is written down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from loadmaster_flight.wire.control import CreateRunRequest, RunView
from support.editing import Answer, Editor
from support.synthetic import Cluster, wait_for

MEDIA = {"media": {"vision": {}}, "source": {"transform": {"text": "text", "image": "picture"}}}


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster], database_url: str) -> Cluster:
    """A planner, on either database."""
    return make_cluster(database_url=database_url)


@pytest.fixture
def make_editor(cluster: Cluster, make_run: Callable[..., CreateRunRequest]) -> Callable[..., Editor]:
    """People at one run, which is created with the first of them."""

    def make(author: str = "ada", **spec: Any) -> Editor:
        cluster.client.post("/runs", make_run(**spec), RunView)
        return Editor(cluster.server.url, author)

    return make


@pytest.fixture
def editor(make_editor: Callable[..., Editor]) -> Editor:
    """A person at a run that nobody has joined."""
    return make_editor()


@pytest.fixture
def bound(cluster: Cluster, editor: Editor) -> Editor:
    """A person at a run of which steps [0, 12) are planned and [0, 4) bound."""
    cluster.loader()
    cluster.open()
    cluster.planned(12)
    assert len(cluster.plans(0, 4, bind=1)) == 4
    return editor


def _code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.body["code"]


def _weight(schedule: dict[str, Any], source: str) -> list[float]:
    return [knot["value"] for knot in schedule["weights"][source]["knots"]]


def test_schedule_when_nothing_was_published_then_what_the_run_was_created_with(editor: Editor) -> None:
    answer = editor.ask("GET", "/schedule")
    assert (answer.status, answer.etag, answer.body["revision"]) == (200, '"0"', 0)
    assert [_weight(answer.body["schedule"], source) for source in ("web", "code")] == [[3], [1]]
    assert answer.body["timeline"] == [{"from_step": 0, "revision": 0}]
    assert (answer.body["first_free"], answer.body["planned"]) == (0, 0)


def test_publish_when_it_matches_then_a_revision_at_the_first_free_step(bound: Editor) -> None:
    answer = bound.publish({"web": 9})
    assert (answer.status, answer.body["scheduled"]) == (201, None)
    revision = answer.body["revision"]
    assert (revision["revision"], revision["base"], revision["from_step"]) == (1, 0, 4)
    assert (revision["author"], revision["message"], revision["changed"]) == ("ada", "more web", ["weights.web"])
    view = bound.ask("GET", "/schedule")
    assert (view.etag, _weight(view.body["schedule"], "web")) == ('"1"', [9])
    assert view.body["timeline"] == [{"from_step": 0, "revision": 0}, {"from_step": 4, "revision": 1}]
    assert bound.audit() == [("ada", "published", 1)]


def test_publish_when_the_step_is_bound_then_409_with_the_first_free_one(bound: Editor) -> None:
    answer = bound.publish({"web": 9}, at_step=3)
    assert _code(answer) == (409, "CONFLICT")
    assert answer.body["details"] == {"first_free": 4}
    assert "from 4 on, got 3" in answer.body["detail"]
    assert bound.schedule()["revision"] == 0
    assert bound.audit() == []
    assert bound.ask("GET", "/drafts/ada").body["base"] == 0


def test_publish_when_the_base_moved_then_412_with_the_newest_and_the_draft_kept(
    editor: Editor, make_editor: Callable[..., Editor]
) -> None:
    bob = make_editor("bob")
    assert bob.publish({"web": 5}).status == 201
    answer = editor.publish({"web": 7, "code": 2}, base=0)
    assert _code(answer) == (412, "STALE")
    details = answer.body["details"]
    assert (details["current"], details["revision"]["revision"], details["revision"]["author"]) == (1, 1, "bob")
    assert details["conflicts"] == ["weights.web"]
    draft = editor.ask("GET", "/drafts/ada").body
    assert (draft["base"], draft["is_stale"], _weight(draft["schedule"], "web")) == (0, True, [7])
    assert editor.audit() == [("bob", "published", 1)]


def test_rebase_when_a_conflict_is_decided_then_the_draft_can_be_published(
    editor: Editor, make_editor: Callable[..., Editor]
) -> None:
    assert make_editor("bob").publish({"web": 5}).status == 201
    assert editor.publish({"web": 7, "code": 2}, base=0).status == 412
    undecided = editor.ask("POST", "/drafts/ada/rebase", {}).body
    assert [conflict["field"] for conflict in undecided["conflicts"]] == ["weights.web"]
    sides = [undecided["conflicts"][0][side]["ramp"]["knots"][0]["value"] for side in ("base", "mine", "theirs")]
    assert sides == [3, 7, 5]
    assert undecided["draft"]["base"] == 0
    decided = editor.ask("POST", "/drafts/ada/rebase", {"choices": {"weights.web": "theirs"}}).body
    assert (decided["conflicts"], decided["draft"]["base"], decided["draft"]["is_stale"]) == ([], 1, False)
    request = {"author": "ada", "message": "more code"}
    assert editor.ask("POST", "/revisions", request, if_match=1).status == 201
    now = editor.schedule()
    assert [_weight(now["schedule"], source) for source in ("web", "code")] == [[5], [2]]
    assert editor.ask("GET", "/drafts/ada").status == 404


def test_publish_when_two_at_once_from_one_base_then_one_wins(
    editor: Editor, make_editor: Callable[..., Editor]
) -> None:
    people = [make_editor(f"p{i}") for i in range(6)]
    answers: list[Answer] = []
    barrier = threading.Barrier(len(people))

    def publish(who: Editor, weight: int) -> None:
        barrier.wait(30)
        answers.append(who.publish({"web": weight}, base=0))

    threads = [threading.Thread(target=publish, args=(who, i + 4)) for i, who in enumerate(people)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answer.status for answer in answers) == [201, 412, 412, 412, 412, 412]
    assert len(editor.audit()) == 1


@pytest.mark.parametrize("if_match", [None, "3", "*", '"-1"'])
def test_publish_when_if_match_is_missing_or_strange_then_refused(editor: Editor, if_match: str | None) -> None:
    body = {"author": "ada", "message": "m", "schedule": editor.schedule()["schedule"]}
    answer = editor.ask("POST", "/revisions", body, if_match=if_match)
    assert _code(answer) == (400, "BAD_REQUEST")
    assert "If-Match" in answer.body["detail"]


@pytest.mark.parametrize(
    ("fields", "status", "says"),
    [
        ({"weights": {"wep": 1}}, 422, "weights.wep names no source; did you mean 'web'?"),
        ({"retired": ["x"]}, 422, "retired.x names no source"),
        ({"retired": ["web", "code"]}, 422, "must have a positive weight at every step from 0 on"),
        ({"weights": {"web": [{"at": 0, "value": 1}, {"at": 90, "value": 0}], "code": 0}}, 422, "all are 0 at step 90"),
        ({"seq_len": 60}, 422, "align must divide seq_len, got align 16 and seq_len 60"),
        ({"microbatches": 0}, 422, "microbatches must be at least g_multiple 1, got 0"),
        ({"microbatches": 70_000}, 409, "at most 65536 microbatches"),
        ({"weights": {"web": -1}}, 400, "weights.web"),
        ({"message": " "}, 400, "message"),
        ({"at_step": -1}, 400, "at_step"),
    ],
)
def test_publish_when_the_run_cannot_go_on_with_it_then_refused(
    editor: Editor, fields: dict[str, Any], status: int, says: str
) -> None:
    answer = editor.publish(**fields)
    assert (answer.status, editor.schedule()["revision"]) == (status, 0)
    assert says in answer.body["detail"]
    assert editor.audit() == []


def test_publish_when_steps_cannot_be_dealt_to_the_mesh_then_refused(cluster: Cluster, editor: Editor) -> None:
    cluster.open(2)
    answer = editor.publish(microbatches=[{"at": 0, "value": 4}, {"at": 30, "value": 5}])
    assert _code(answer) == (409, "MESH_MISMATCH")
    assert "got 5 % 2 at step 30" in answer.body["detail"]


def test_publish_when_rows_get_shorter_for_queued_media_then_refused(make_editor: Callable[..., Editor]) -> None:
    editor = make_editor(**MEDIA)
    answer = editor.publish(seq_len=48)
    assert _code(answer) == (422, "BAD_SPEC")
    assert "seq_len must stay at 64 or more" in answer.body["detail"]
    assert editor.publish(seq_len=128).status == 201


def test_publish_when_an_old_weight_was_zero_before_then_only_later_steps_count(bound: Editor) -> None:
    """All shares are 0 before step 4, which is over: a run could not be created so, a revision may be."""
    weights = {"web": [{"at": 0, "value": 0}, {"at": 4, "value": 1}], "code": 0}
    assert bound.publish(weights).body["revision"]["from_step"] == 4


def test_publish_when_the_step_is_not_planned_then_scheduled(bound: Editor) -> None:
    answer = bound.publish({"web": 9}, at_step=100)
    scheduled = answer.body["scheduled"]
    assert (answer.status, answer.body["revision"]) == (201, None)
    assert (scheduled["state"], scheduled["base"], scheduled["at_step"]) == ("pending", 0, 100)
    one = bound.ask("GET", f"/scheduled/{scheduled['number']}").body
    assert _weight(one.pop("schedule"), "web") == [9]
    assert bound.schedule()["scheduled"] == [one]
    assert bound.schedule()["revision"] == 0
    assert bound.audit() == [("ada", "scheduled", None)]


def test_scheduled_when_the_base_moves_then_suspended_with_the_reason(bound: Editor) -> None:
    number = bound.publish({"web": 9}, at_step=100).body["scheduled"]["number"]
    assert bound.publish({"code": 2}).body["revision"]["revision"] == 1
    (record,) = bound.schedule()["scheduled"]
    assert (record["number"], record["state"]) == (number, "suspended")
    assert record["reason"] == "it was made from revision 0, and the schedule is at revision 1 now"
    assert bound.audit() == [("ada", "scheduled", None), ("ada", "published", 1), ("planner", "suspended", None)]
    assert bound.ask("POST", f"/scheduled/{number}/retime", {"author": "ada", "at_step": 200}).status == 409
    assert bound.ask("DELETE", f"/scheduled/{number}?author=bob").body["state"] == "cancelled"
    assert bound.schedule()["scheduled"] == []


def test_scheduled_when_timed_anew_or_cancelled_then_so_and_written_down(bound: Editor) -> None:
    number = bound.publish({"web": 9}, at_step=100).body["scheduled"]["number"]
    retime = f"/scheduled/{number}/retime"
    refused = bound.ask("POST", retime, {"author": "bob", "at_step": 7})
    assert (refused.status, refused.body["details"]) == (409, {"first_free": 13})
    assert bound.ask("POST", retime, {"author": "bob", "at_step": 50}).body["at_step"] == 50
    assert bound.ask("DELETE", f"/scheduled/{number}?author=bob").body["state"] == "cancelled"
    assert _code(bound.ask("DELETE", f"/scheduled/{number}?author=bob")) == (409, "CONFLICT")
    assert _code(bound.ask("DELETE", "/scheduled/77?author=bob")) == (404, "NOT_FOUND")
    assert [action for _, action, _ in bound.audit()] == ["scheduled", "retimed", "cancelled"]


def test_restore_when_an_old_revision_then_a_new_one_like_it(editor: Editor) -> None:
    assert editor.publish({"web": 9}).status == 201
    request = {"author": "bob", "message": "back"}
    assert editor.ask("POST", "/revisions/0/restore", request, if_match=0).status == 412
    revision = editor.ask("POST", "/revisions/0/restore", request, if_match=1).body["revision"]
    assert (revision["revision"], revision["base"], _weight(revision["schedule"], "web")) == (2, 1, [3])
    assert editor.ask("POST", "/revisions/9/restore", request, if_match=2).status == 404
    assert editor.audit() == [("ada", "published", 1), ("bob", "restored", 2)]


def test_hold_when_curves_move_then_constant_at_the_first_free_step(bound: Editor) -> None:
    slope = [{"at": 0, "value": 2, "shape": "linear"}, {"at": 100, "value": 102}]
    assert bound.publish({"web": slope}).status == 201
    revision = bound.ask("POST", "/schedule/hold", {"author": "bob", "message": "stop"}).body["revision"]
    assert (revision["from_step"], _weight(revision["schedule"], "web")) == (4, [6])
    assert _weight(revision["schedule"], "code") == [1]
    assert bound.audit()[-1] == ("bob", "held", 2)


def test_revisions_when_listed_then_newest_first_by_page(editor: Editor) -> None:
    for i in range(3):
        assert editor.publish({"web": 4 + i}, base=i).status == 201
    pages = [editor.ask("GET", f"/revisions?limit=2{more}").body for more in ("", "&before=2")]
    assert [[revision["revision"] for revision in page] for page in pages] == [[3, 2], [1, 0]]
    one = editor.ask("GET", "/revisions/2").body
    assert _weight(one.pop("schedule"), "web") == [5]
    assert one == pages[0][1]
    assert editor.ask("GET", "/revisions/4").status == 404


def test_draft_when_saved_from_two_tabs_then_the_second_learns_of_the_first(editor: Editor) -> None:
    body = {"base": 0, "schedule": editor.schedule()["schedule"]}
    first = editor.ask("PUT", "/drafts/ada", body, if_match=0)
    version = first.body["version"]
    assert (first.status, first.etag) == (200, f'"{version}"')
    second = editor.ask("PUT", "/drafts/ada", body, if_match=version).body["version"]
    stale = editor.ask("PUT", "/drafts/ada", body, if_match=version)
    assert second > version
    assert (stale.status, stale.body["details"]) == (412, {"version": second})
    assert [draft["author"] for draft in editor.ask("GET", "/drafts").body] == ["ada"]
    assert editor.ask("DELETE", "/drafts/ada").status == 204
    assert editor.ask("GET", "/drafts").body == []
    assert editor.ask("PUT", "/drafts/ada", body, if_match=second).status == 412, "a tab that knew the old draft"
    assert editor.ask("PUT", "/drafts/ada", body, if_match=0).body["version"] > second
    assert _code(editor.ask("PUT", "/drafts/ada", body | {"base": 5})) == (400, "BAD_REQUEST")


def test_draft_when_thrown_away_in_a_tab_that_knew_an_old_one_then_it_stays(editor: Editor) -> None:
    body = {"base": 0, "schedule": editor.schedule()["schedule"]}
    first, second = (editor.ask("PUT", "/drafts/ada", body).body["version"] for _ in range(2))
    stale = editor.ask("DELETE", "/drafts/ada", if_match=first)
    assert (stale.status, stale.body["details"]) == (412, {"version": second})
    assert editor.ask("GET", "/drafts/ada").body["version"] == second
    assert [editor.ask("DELETE", "/drafts/ada", if_match=second).status for _ in range(2)] == [204, 204]


def test_preview_when_a_source_gets_more_then_its_tokens_and_warnings(bound: Editor) -> None:
    schedule = bound.schedule()["schedule"] | {"weights": {"web": 0.25, "code": 0.75}}
    answer = bound.ask("POST", "/preview", {"schedule": schedule, "until_step": 104})
    body = answer.body
    assert (answer.status, body["from_step"], body["changed"]) == (200, 4, ["weights.code", "weights.web"])
    web, code = body["sources"]
    assert web["before"]["tokens"] > 2.5 * web["after"]["tokens"]
    totals = [sum(source[side]["tokens"] for source in (web, code)) for side in ("before", "after")]
    assert totals[0] == pytest.approx(totals[1], abs=2)
    assert "the share of web jumps from 75% to 25% at step 4" in body["warnings"]
    assert bound.schedule()["revision"] == 0


def test_preview_when_a_source_ends_then_the_step_is_named(
    make_editor: Callable[..., Editor], cluster: Cluster
) -> None:
    """An epoch of each source is planned to its end first, so that its size is known."""
    editor = make_editor(source={"max_epochs": 3}, budgets={"plan_ahead": 200, "bind_ahead": 4, "build_ahead": 2})
    cluster.loader()
    cluster.open()
    wait_for(lambda: editor.schedule()["planned"] >= 120, what="two epochs of web")
    body = {"schedule": editor.schedule()["schedule"], "until_step": 100_000, "max_repeats": 1.5}
    web = editor.ask("POST", "/preview", body).body["sources"][0]
    assert web["epoch_tokens"] > 0
    assert web["after"]["epochs"] == pytest.approx(3, rel=0.01)
    rate = 0.75 * 4 * 64
    assert web["after"]["dry_step"] == pytest.approx(3 * web["epoch_tokens"] / rate, rel=0.05)


def test_preview_when_its_step_is_bound_or_its_end_too_near_then_refused(bound: Editor) -> None:
    body = {"schedule": bound.schedule()["schedule"], "until_step": 50}
    assert bound.ask("POST", "/preview", body | {"at_step": 2}).body["details"] == {"first_free": 4}
    assert bound.ask("POST", "/preview", body | {"until_step": 4}).status == 400


def test_audit_when_filtered_and_paged_then_the_rows_asked_for(editor: Editor) -> None:
    for i in range(3):
        editor.publish({"web": 4 + i}, base=i)
    rows = editor.audit_rows(limit=2)
    assert [row["revision"] for row in rows] == [3, 2]
    assert rows[0]["details"] == {"from_step": 0, "base": 2, "plans": 0}
    before = editor.audit_rows(author="ada", action="published", before=rows[-1]["number"])
    assert [row["revision"] for row in before] == [1]
    assert editor.audit_rows(author="bob") == []


def test_every_route_when_there_is_no_such_run_then_404(cluster: Cluster) -> None:
    nobody = Editor(cluster.server.url, run="none")
    for path in ("/schedule", "/revisions", "/revisions/0", "/scheduled", "/drafts", "/drafts/ada"):
        assert nobody.ask("GET", path).status == 404, path
