"""The schedule editor: curves are changed by dragging, by keys, by clicks and by numbers, and drafts are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from support.console_cluster import ConsoleCluster
from support.editing import Editor
from support.schedule_page import SchedulePage, plain

VIEW = "?from=0&to=20000"
OpenEditor = Callable[..., SchedulePage]


def test_knot_when_dragged_moved_by_keys_or_by_clicks_then_the_same_draft(
    open_editor: OpenEditor, ada: Editor, desk: ConsoleCluster
) -> None:
    """Three ways to one curve; the server has the draft, and nothing is in force that was not before."""
    revision = ada.schedule()["revision"]
    editor = open_editor(VIEW)
    editor.add_by_click(0.5, 0.5)
    expect(editor.knots()).to_have_count(2)
    editor.drag(1, 0.75, 0.8)
    dragged = editor.knot_texts()[1]
    assert dragged.startswith("step 15 000, ")
    editor.page.get_by_role("button", name="Undo").click()
    assert editor.knot_texts()[1].startswith("step 10 000, ")
    editor.move_by_click(1, 0.75, 0.8)
    assert editor.knot_texts()[1] == dragged
    editor.page.get_by_role("button", name="Undo").click()
    knot = editor.knots().nth(1)
    knot.focus()
    for _ in range(100):
        if plain(knot.get_attribute("aria-valuetext") or "").startswith("step 15 000, "):
            break
        knot.press("ArrowRight")
    while float(dragged.rsplit(" ", 1)[1]) > float(editor.knot_texts()[1].rsplit(" ", 1)[1]) + 1e-9:
        knot.press("ArrowUp")
    assert editor.knot_texts()[1] == dragged
    editor.wait_until_kept()
    draft = ada.ask("GET", "/drafts/ada").body
    kept = draft["schedule"]["weights"]["web"]["knots"][1]
    assert kept["at"] == 15_000
    assert kept["value"] == float(dragged.rsplit(" ", 1)[1])
    assert ada.schedule()["revision"] == revision


def test_keys_of_a_knot_when_pressed_then_shape_neighbours_bounds_and_removal(open_editor: OpenEditor) -> None:
    editor = open_editor(VIEW)
    editor.add_by_click(0.5, 0.5)
    editor.add_by_click(0.8, 0.7)
    knots = editor.knots()
    knots.nth(1).focus()
    knots.nth(1).press("s")
    knots.nth(1).press("s")
    expect(editor.page.get_by_role("combobox", name="Knot 2: way to the next")).to_have_value("cosine")
    knots.nth(1).press("]")
    expect(knots.nth(2)).to_be_focused()
    knots.nth(2).press("[")
    knots.nth(1).press("End")
    assert editor.knot_texts()[1].startswith("step 15 999, ")
    knots.nth(1).press("Delete")
    expect(knots).to_have_count(2)
    editor.page.keyboard.press("Control+z")
    expect(knots).to_have_count(3)


def test_numbers_when_typed_then_the_picture_follows_and_the_others_are_renormalised(open_editor: OpenEditor) -> None:
    editor = open_editor(VIEW)
    editor.add_by_click(0.5, 0.5)
    editor.type_number("Knot 2: step", "12 000")
    editor.type_number("Knot 2: share in percent", "60")
    assert editor.knot_texts()[1] == "step 12 000, web 60 %, weight 0.825"
    editor.type_number("Knot 2: weight", "0.6")
    editor.page.get_by_role("button", name="Lock code").click()
    editor.page.get_by_role("row").nth(2).get_by_role("button", name="Renormalise others").click()
    assert editor.knot_texts()[1] == "step 12 000, web 60 %, weight 0.6"
    editor.select("code")
    expect(editor.knots()).to_have_count(1)
    editor.select("books")
    assert editor.knot_texts()[1] == "step 12 000, books 8 %, weight 0.08"


def test_draft_when_the_page_is_loaded_again_then_still_there(open_editor: OpenEditor) -> None:
    editor = open_editor(VIEW)
    editor.add_by_click(0.5, 0.5)
    before = editor.knot_texts()
    editor.page.reload()
    expect(editor.knots()).to_have_count(2)
    assert editor.knot_texts() == before
    editor.wait_until_kept()
    editor.page.reload()
    expect(editor.knots()).to_have_count(2)
    editor.page.get_by_role("button", name="Discard draft").click()
    expect(editor.knots()).to_have_count(1)


def test_draft_when_another_tab_wrote_it_then_a_person_chooses(
    open_editor: OpenEditor, ada: Editor, complaints: Any
) -> None:
    complaints.expected.append("412")
    editor = open_editor(VIEW)
    editor.add_by_click(0.5, 0.5)
    editor.wait_until_kept()
    draft = ada.ask("GET", "/drafts/ada").body
    draft["schedule"]["weights"]["web"] = {"knots": [{"at": 0, "value": 0.9}]}
    ada.ask("PUT", "/drafts/ada", {"base": draft["base"], "schedule": draft["schedule"]})
    editor.add_by_click(0.8, 0.3)
    expect(editor.page.get_by_role("alert")).to_contain_text("changed in another tab")
    expect(editor.knots()).to_have_count(3)
    editor.page.get_by_role("button", name="Take the other one").click()
    expect(editor.knots()).to_have_count(1)


def test_viewer_when_looking_then_controls_are_there_and_say_why_not(open_editor: OpenEditor) -> None:
    editor = open_editor(VIEW, role="viewer", name="vic")
    page = editor.page
    for name in ("Hold current mixture now", "Review and publish"):
        button = page.get_by_role("button", name=name)
        expect(button).to_have_attribute("aria-disabled", "true")
        expect(button).to_have_accessible_description("Needs the role publisher; you are viewer")
    expect(page.get_by_role("button", name="Retire source")).to_have_accessible_description(
        "Needs the role editor; you are viewer"
    )
    expect(page.get_by_text("You look at the schedule; you cannot edit it.")).to_be_visible()
    page.mouse.click(*editor.place(0.5, 0.5))
    expect(page.get_by_role("button", name="Add knot here")).to_have_count(0)


def test_source_when_retired_then_said_to_be_and_taken_up_again(open_editor: OpenEditor) -> None:
    editor = open_editor(VIEW)
    editor.select("notes")
    editor.page.get_by_role("button", name="Retire source").click()
    row = editor.page.get_by_role("list", name="Sources").get_by_role("button", name="notes").first
    expect(row).to_contain_text("retired")
    editor.page.get_by_role("button", name="Take up again").click()
    expect(row).not_to_contain_text("retired")


def test_editor_and_its_dialog_in_both_themes_have_no_violation(
    open_editor: OpenEditor, check_accessible: Callable[[Page], None]
) -> None:
    editor = open_editor(VIEW)
    editor.add_by_click(0.5, 0.5)
    editor.wait_until_kept()
    check_accessible(editor.page)
    editor.review()
    expect(editor.page.get_by_role("table", name="Tokens and epochs")).to_be_visible()
    check_accessible(editor.page)
