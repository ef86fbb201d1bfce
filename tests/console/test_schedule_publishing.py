"""Publishing from the console while real ranks train: the step, the way back, and what waits for its step."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from support.console_cluster import WORLD, ConsoleCluster
from support.editing import Editor
from support.schedule_page import SchedulePage, grouped, plain

OpenEditor = Callable[..., SchedulePage]


def rows_of(cluster: ConsoleCluster, rank: int, first: int, last: int) -> dict[int, set[int]]:
    """Lengths of the microbatches that a rank received, by step in [first, last)."""
    found = {line["step"]: {len(tokens) for tokens in line["tokens"]} for line in cluster.lines(rank)}
    return {step: found[step] for step in range(first, last)}


def test_publish_at_a_step_then_all_ranks_switch_exactly_there(
    open_editor: OpenEditor, ada: Editor, desk: ConsoleCluster
) -> None:
    """C and a weight are edited by number while ranks stand still at different depths, then they go on."""
    desk.hold()
    editor = open_editor("?sel=seq_len")
    before = ada.schedule()
    step = before["first_free"] + 4
    editor.page.get_by_role("button", name=re.compile("^Add knot at step")).click()
    editor.type_number("Knot 2: step", str(step))
    editor.type_number("Knot 2: value", "512")
    dialog = editor.review()
    changes = dialog.get_by_role("list", name="Changes")
    expect(changes).to_contain_text(f"C (tokens) 256 → 512 at step {grouped(step)}")
    editor.publish(dialog, "longer rows", at_step=step)
    assert editor.note() == f"Revision {before['revision'] + 1} is in force from step {step} on."
    desk.go_on()
    desk.wait_for_step(step + 6)
    for rank in range(WORLD):
        seen = rows_of(desk, rank, step - 6, step + 6)
        assert seen == {each: {256 if each < step else 512} for each in seen}
    assert ada.audit()[-1] == ("ada", "published", before["revision"] + 1)
    assert "ada" not in {draft["author"] for draft in ada.ask("GET", "/drafts").body}


def test_publish_for_a_past_step_then_refused_with_the_first_free_one(
    open_editor: OpenEditor, ada: Editor, desk: ConsoleCluster, complaints: Any
) -> None:
    complaints.expected.append("409")
    desk.hold()
    before = ada.schedule()["revision"]
    editor = open_editor()
    editor.page.get_by_role("button", name="Retire source").click()
    dialog = editor.review()
    editor.publish(dialog, "no web", at_step=1)
    expect(dialog.get_by_role("alert")).to_contain_text("at_step must be a step that is not bound yet")
    first = ada.schedule()["first_free"]
    dialog.get_by_role("button", name=re.compile("^Use step")).click()
    expect(dialog.get_by_role("textbox", name="From step", exact=True)).to_have_value(str(first))
    assert ada.schedule()["revision"] == before
    dialog.get_by_role("button", name="Publish", exact=True).click()
    assert editor.note() == f"Revision {before + 1} is in force from step {first} on."


def test_scheduled_when_the_base_moves_then_suspended_loudly_and_cancelled(
    open_editor: OpenEditor, ada: Editor, bob: Editor, desk: ConsoleCluster
) -> None:
    editor = open_editor("?from=0&to=20000")
    editor.add_by_click(0.9, 0.5)
    editor.publish(editor.review(), "later, more web", at_step=15_000)
    assert editor.note() == "Scheduled for step 15000."
    panel = editor.page.get_by_role("region", name="Scheduled publishes")
    expect(panel).to_contain_text("pending")
    panel.get_by_role("textbox", name="Wait for step").fill("16000")
    panel.get_by_role("textbox", name="Wait for step").press("Enter")
    panel.get_by_role("button", name="Re-time").click()
    expect(panel).to_contain_text(re.compile("for step 16\u202f000"))
    assert bob.publish({"code": 0.5}, base=ada.schedule()["revision"]).status == 201
    expect(panel.get_by_role("alert")).to_contain_text("It will not happen")
    expect(panel).to_contain_text("suspended")
    panel.get_by_role("button", name="Open as draft").click()
    expect(editor.page.get_by_text("Compare and rebase")).to_be_visible()
    panel.get_by_role("button", name="Cancel it").click()
    expect(panel).to_contain_text("None.")


def test_restore_when_reviewed_then_a_new_revision_like_the_old_one(
    open_page: Callable[..., Page], ada: Editor, bob: Editor, desk: ConsoleCluster,
    check_accessible: Callable[[Page], None],
) -> None:  # fmt: skip
    old = ada.schedule()
    assert bob.publish({"code": 0.9}, base=old["revision"]).status == 201
    page = open_page(f"/runs/{desk.run}/revisions", role="publisher", name="ada")
    entry = page.get_by_role("listitem").filter(has=page.get_by_text(f"Revision {old['revision']}", exact=True))
    expect(page.get_by_role("list", name="Changes")).to_contain_text("code")
    check_accessible(page)
    entry.get_by_role("button", name="Restore").click()
    SchedulePage(page, desk.run).publish(page.get_by_role("dialog"), "back")
    expect(page.get_by_role("status").filter(has_text="in force from step")).to_be_visible()
    assert ada.schedule()["schedule"] == old["schedule"]
    assert ada.schedule()["revision"] == old["revision"] + 2
    assert ada.audit()[-1] == ("ada", "restored", old["revision"] + 2)


def test_hold_when_a_curve_moves_then_constant_from_its_step(
    open_editor: OpenEditor, ada: Editor, desk: ConsoleCluster
) -> None:
    desk.hold()
    ramp = [{"at": 0, "value": 0.1, "shape": "linear"}, {"at": 20_000, "value": 4.0}]
    assert ada.publish({"web": {"knots": ramp}}, base=ada.schedule()["revision"]).status == 201
    editor = open_editor()
    dialog = editor.review("Hold current mixture now")
    editor.publish(dialog, "hold")
    assert "in force from step" in editor.note()
    (knot,) = ada.schedule()["schedule"]["weights"]["web"]["knots"]
    assert 0.1 < knot["value"] < 4.0


def test_two_edits_within_a_moment_then_the_later_rules_for_all_ranks(
    ada: Editor, bob: Editor, desk: ConsoleCluster
) -> None:
    """Nothing is rewound, repeated or lost, and each edit has its row in the audit log."""
    start = ada.schedule()["revision"]
    first = ada.publish(base=start, seq_len=384, message="one").body["revision"]
    second = bob.publish(base=start + 1, seq_len=512, message="two").body["revision"]
    desk.wait_for_step(second["from_step"] + 4)
    for rank in range(WORLD):
        seen = rows_of(desk, rank, first["from_step"], second["from_step"] + 4)
        assert all(len(lengths) == 1 for lengths in seen.values())
        assert {step: seen[step] for step in range(second["from_step"], second["from_step"] + 4)} == {
            step: {512} for step in range(second["from_step"], second["from_step"] + 4)
        }
        steps = [line["step"] for line in desk.lines(rank)]
        assert steps == list(range(len(steps)))
    assert ada.audit()[-2:] == [("ada", "published", start + 1), ("bob", "published", start + 2)]


def test_edit_when_the_planner_is_killed_then_resumed_under_it_and_the_page_goes_on(
    open_editor: OpenEditor, ada: Editor, desk: ConsoleCluster, complaints: Any
) -> None:
    """kill -9 right after a publish, with an edit in the tab: the draft is kept, and all ranks go on at the step."""
    complaints.expected += [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY",
    ]
    editor = open_editor("?from=0&to=20000")
    revision = ada.publish(base=ada.schedule()["revision"], seq_len=512).body["revision"]
    desk.kill_planner()
    editor.add_by_click(0.5, 0.5)
    expect(editor.page.get_by_text("draft only in this tab")).to_be_visible()
    desk.revive()
    editor.wait_until_kept()
    desk.wait_for_step(revision["from_step"] + 6, timeout_s=120)
    for rank in range(WORLD):
        lines = desk.lines(rank)
        assert [line["step"] for line in lines] == list(range(len(lines)))
        seen = rows_of(desk, rank, revision["from_step"], revision["from_step"] + 6)
        assert set().union(*seen.values()) == {512}
        ids = [sample for line in lines[-40:] for sample in line["ids"]]
        assert len(ids) == len(set(ids))
    audit = [row for row in ada.audit() if row[2] == revision["revision"]]
    assert audit == [("ada", "published", revision["revision"])]
    assert plain(editor.knot_texts()[1]).startswith("step 10 000")
