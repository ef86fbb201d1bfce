"""Graph, mesh, balance and step inspector of a live run: they show what is, keep what one looks at, and go by keys."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from tokenizers import Tokenizer

from support.commands import run_command
from support.console_cluster import WORLD, ConsoleCluster

from .conftest import Complaints

OpenPage = Callable[..., Page]
ALIGN = 16
SCREENS = {
    "graph": ".react-flow__node",
    "graph?sel=planner": ".react-flow__node",
    "mesh": "#main canvas",
    "mesh?by=host&sel=1": "#main canvas",
    "balance": "#main .u-over",
    "steps/3?rank=0": "#main article",
}


def settled(page: Page, selector: str) -> None:
    """Wait until a screen shows what it is for."""
    expect(page.locator(selector).first).to_be_visible()
    expect(page.locator("#main .mantine-Skeleton-root")).to_have_count(0)


@pytest.mark.parametrize("path", SCREENS)
def test_screen_of_the_plane_in_both_themes_has_no_violation(
    path: str, open_page: OpenPage, check_accessible: Callable[[Page], None]
) -> None:
    page = open_page(f"/runs/tides/{path}")
    settled(page, SCREENS[path])
    check_accessible(page)


@pytest.mark.parametrize("path", ["graph", "mesh", "balance"])
def test_table_of_the_plane_in_both_themes_has_no_violation(
    path: str, open_page: OpenPage, check_accessible: Callable[[Page], None]
) -> None:
    page = open_page(f"/runs/tides/{path}")
    settled(page, SCREENS[path])
    as_table(page)
    expect(page.locator("#main tbody tr td").first).to_be_visible()
    check_accessible(page)


def as_table(page: Page) -> None:
    """Show the first chart's numbers as a table."""
    page.locator("#main label", has_text="Table").first.click()


def documents(page: Page, microbatch: int) -> list[Locator]:
    """The documents of a microbatch, in the order in which they are shown."""
    section = page.get_by_role("region", name=f"Microbatch {microbatch}", exact=True)
    expect(section.get_by_test_id("document-text").first).to_be_visible()
    return section.get_by_role("article").all()


def pieces_of_rank_0(console: ConsoleCluster, step: int) -> dict[str, dict[str, Any]]:
    """Sample -> piece, as the API has them: their lengths say where a document ends in the batch."""
    with contextlib.closing(console.client()) as client:
        answer = client.request("GET", f"/runs/tides/steps/{step}", query={"rank": 0, "text": True})
    return {piece["sample"]: piece for piece in json.loads(answer)["pieces"]}


def test_step_inspector_shows_the_very_text_that_rank_0_received(
    open_page: OpenPage, console: ConsoleCluster, tokenizer_file: Path
) -> None:
    """Compared with the tokens of the batch that rank 0's own client got, and with the ids that it had."""
    console.wait_for_step(5)
    line = next(line for line in console.lines(0) if line["step"] == 4)
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    pieces, shown_ids, num_whole = pieces_of_rank_0(console, 4), list[str](), 0
    page = open_page("/runs/tides/steps/4?rank=0")
    for number, rows in enumerate(line["tokens"]):
        tokens, at = np.ravel(rows).tolist(), 0
        for document in documents(page, number):
            sample = (document.get_attribute("aria-label") or "").split(": ", 1)[1]
            num = pieces[sample]["num_tokens"]
            got = tokenizer.decode(tokens[at : at + num], skip_special_tokens=False)
            shown = document.get_by_test_id("document-text").text_content() or ""
            if num == pieces[sample]["sample_tokens"]:
                assert shown == got
                num_whole += 1
            else:  # one that was cut is shown whole
                assert got in shown
            at += -(-num // ALIGN) * ALIGN
            shown_ids.append(sample)
    assert shown_ids == line["ids"]
    assert num_whole > 0


def test_command_of_the_step_inspector_says_the_same_in_a_shell(open_page: OpenPage, console: ConsoleCluster) -> None:
    page = open_page("/runs/tides/steps/3?rank=1&microbatch=0")
    texts = [piece.get_by_test_id("document-text").text_content() or "" for piece in documents(page, 0)]
    program, *arguments = shlex.split(page.locator("#main code", has_text="loadmaster explain").inner_text())
    assert program == "loadmaster"
    told = run_command([sys.executable, "-m", "loadmaster", *arguments])
    squeezed = " ".join(told.split())
    assert all(" ".join(text.split()) in squeezed for text in texts)


def test_step_inspector_by_keys_goes_to_the_next_step_rank_and_microbatch(open_page: OpenPage) -> None:
    page = open_page("/runs/tides/steps/3?rank=0")
    settled(page, "#main article")
    for key, address in [
        ("n", "/steps/4?rank=0"),
        ("j", "/steps/4?rank=1"),
        ("]", "/steps/4?rank=1&microbatch=0"),
        ("p", "/steps/3?rank=1&microbatch=0"),
        ("[", "/steps/3?rank=1"),
        ("k", "/steps/3?rank=0"),
        ("k", "/steps/3?rank=0"),
    ]:
        page.keyboard.press(key)
        page.wait_for_url(f"**{address}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Step 3, rank 0")


def test_steps_without_a_number_lead_to_the_newest_consumed_one(open_page: OpenPage, console: ConsoleCluster) -> None:
    page = open_page("/runs/tides/steps")
    page.wait_for_url("**/steps/*")
    step = int(page.url.rsplit("/", 1)[1].split("?")[0])
    assert 0 < step + 1 <= console.stream().acknowledged


def test_step_that_is_not_planned_is_told_in_the_planners_words(open_page: OpenPage, complaints: Complaints) -> None:
    complaints.expected.append("404")
    page = open_page("/runs/tides/steps/19999?rank=0")
    expect(page.get_by_role("alert")).to_contain_text("step 19999 of tides/train is not planned")


AT_REST = """() => new Promise(done => {
  const place = () => document.querySelector('.react-flow__viewport').style.transform;
  let [last, frames] = [place(), 0];
  const look = () => {
    frames = place() === last ? frames + 1 : 0;
    last = place();
    if (frames > 10) done(true); else requestAnimationFrame(look);
  };
  look();
})"""


def viewport(page: Page) -> str:
    """Where the graph is looked at, as CSS."""
    return page.locator(".react-flow__viewport").get_attribute("style") or ""


def test_graph_when_numbers_come_keeps_viewport_selection_and_address(open_page: OpenPage) -> None:
    page = open_page("/runs/tides/graph")
    settled(page, SCREENS["graph"])
    page.get_by_role("button", name="Zoom In").click()
    page.get_by_role("navigation", name="Stages, the worst first").get_by_role("button").first.click()
    page.wait_for_url("**sel=*")
    page.evaluate(AT_REST)
    before = viewport(page)
    for _ in range(2):
        with page.expect_response("**/runs/tides/graph?**", timeout=20_000):
            pass
    assert viewport(page) == before
    page.reload()
    settled(page, SCREENS["graph"])
    expect(page.locator(".react-flow__node.selected")).to_have_count(1)


def test_mesh_by_keys_alone_opens_a_rank_and_leads_to_its_batch(open_page: OpenPage) -> None:
    page = open_page("/runs/tides/mesh")
    settled(page, SCREENS["mesh"])
    heat = page.get_by_role("application")
    heat.focus()
    heat.press("ArrowRight")
    heat.press("ArrowRight")
    heat.press("Enter")
    page.wait_for_url("**sel=2*")
    panel = page.get_by_role("region", name="Rank 2", exact=True)
    expect(panel).to_contain_text("dp 2")
    panel.get_by_role("link").click()
    page.wait_for_url("**/steps/*rank=2*")
    settled(page, "#main article")


def test_mesh_as_a_table_has_every_rank_with_the_numbers_of_the_map(open_page: OpenPage) -> None:
    page = open_page("/runs/tides/mesh?metric=behind")
    settled(page, SCREENS["mesh"])
    as_table(page)
    rows = page.locator("#main tbody tr")
    expect(rows).to_have_count(WORLD)
    assert {row.locator("td").first.inner_text() for row in rows.all()} == {str(rank) for rank in range(WORLD)}


def test_balance_when_a_step_is_chosen_shows_its_ranks_and_keeps_it(open_page: OpenPage) -> None:
    page = open_page("/runs/tides/balance?from=0&to=6")
    settled(page, SCREENS["balance"])
    as_table(page)
    page.get_by_role("button", name="2", exact=True).click()
    expect(page.get_by_role("heading", name="Ranks in step 2")).to_be_visible()
    page.wait_for_url("**step=2*")
    page.reload()
    expect(page.get_by_role("heading", name="Ranks in step 2")).to_be_visible()
