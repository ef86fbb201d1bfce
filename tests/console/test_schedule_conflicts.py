"""Two people edit one schedule: neither loses a draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from support.console_cluster import ConsoleCluster
from support.editing import Editor
from support.schedule_page import SchedulePage

OpenEditor = Callable[..., SchedulePage]


def test_conflict_of_two_editors_then_decided_by_field_and_nothing_is_lost(
    open_editor: OpenEditor, ada: Editor, bob: Editor, desk: ConsoleCluster, complaints: Any,
    check_accessible: Callable[[Page], None],
) -> None:  # fmt: skip
    """Both edit web; ada edits books too, bob code. Bob is first."""
    complaints.expected.append("412")
    desk.hold()
    start = ada.schedule()
    editor = open_editor("?from=0&to=20000")
    editor.add_by_click(0.5, 0.5)
    editor.type_number("Knot 2: weight", "0.7")
    editor.select("books")
    editor.add_by_click(0.6, 0.6)
    editor.wait_until_kept()
    dialog = editor.review()
    assert bob.publish({"web": 0.1, "code": 0.9}, base=start["revision"], message="bob's").status == 201
    editor.publish(dialog, "ada's")
    merge = editor.page.get_by_role("dialog", name=f"Revision {start['revision'] + 1} came first")
    expect(merge.get_by_role("row").filter(has_text="code")).to_contain_text("theirs, by itself")
    expect(merge.get_by_role("row").filter(has_text="books")).to_contain_text("mine, by itself")
    rebase = merge.get_by_role("button", name="Rebase my draft")
    expect(rebase).to_have_accessible_description("Choose for web")
    check_accessible(editor.page)
    merge.get_by_role("group", name="web: whose").get_by_role("radio", name="Mine").check()
    rebase.click()
    expect(editor.page.get_by_role("status").filter(has_text="Your draft is on revision")).to_be_visible()
    editor.publish(editor.review(), "ada's, on bob's")
    assert f"Revision {start['revision'] + 2} is in force" in editor.note()
    weights = ada.schedule()["schedule"]["weights"]
    assert weights["code"]["knots"] == [{"at": 0, "value": 0.9, "shape": "step"}]
    assert [knot["value"] for knot in weights["web"]["knots"]] == [0.45, 0.7]
    assert len(weights["books"]["knots"]) == 2
    assert ada.audit()[-2:] == [
        ("bob", "published", start["revision"] + 1),
        ("ada", "published", start["revision"] + 2),
    ]


def test_newer_revision_when_the_draft_is_clean_then_followed_and_else_told(
    open_editor: OpenEditor, ada: Editor, bob: Editor, desk: ConsoleCluster
) -> None:
    """A page without edits shows what is in force; one with edits keeps them and offers to compare."""
    revision = ada.schedule()["revision"]
    editor = open_editor("?from=0&to=20000")
    assert bob.publish({"web": 0.2}, base=revision).status == 201
    expect(editor.page.get_by_text(f"Revision {revision + 1} is in force")).to_be_visible()
    expect(editor.knots().first).to_have_attribute("aria-valuenow", "0.2")
    editor.add_by_click(0.5, 0.5)
    editor.wait_until_kept()
    mine = editor.knot_texts()
    assert bob.publish({"web": 0.3}, base=revision + 1).status == 201
    expect(editor.page.get_by_role("button", name="Compare and rebase")).to_be_visible()
    assert editor.knot_texts() == mine
