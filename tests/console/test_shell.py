"""The console's frame: navigation, keys, themes, the live badge, and what happens when the planner goes away."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from support.console_cluster import ConsoleCluster

from .conftest import Complaints

OpenPage = Callable[..., Page]
SCREENS = ["/runs", "/runs/tides", "/runs/tides/sources", "/runs/tides/checkpoints", "/audit", "/access"]
BADGE = "[data-live]"
GONE = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"]


def step_of(page: Page) -> int:
    """The step that the overview shows."""
    text = page.locator("dt:text-is('Step') + dd").inner_text()
    return int(re.sub(r"\D", "", text))


def wait_for_step(page: Page, step: int) -> None:
    """Until the overview shows at least this step."""
    digits = "Number(document.querySelector('#main dd').innerText.replace(/\\D/g, ''))"
    page.wait_for_function(f"step => {digits} >= step", arg=step)


def badge(page: Page, status: str) -> None:
    """Wait until the live badge says so."""
    expect(page.locator(BADGE)).to_have_attribute("data-live", status, timeout=90_000)


def go_to(page: Page, path: str) -> None:
    """Another screen, until what it shows is there."""
    page.goto(re.sub(r"(https?://[^/]+).*", rf"\1{path}", page.url))
    expect(page.locator("#main h1").first).to_be_visible()
    expect(page.locator("#main [aria-busy=true], #main .mantine-Skeleton-root")).to_have_count(0)


@pytest.mark.timeout(900)  # twelve looks of axe at whole pages: minutes on a machine that does much else
def test_screens_in_both_themes_have_no_violation(open_page: OpenPage, check_accessible) -> None:
    page = open_page("/runs", role="admin")
    for path in SCREENS:
        go_to(page, path)
        check_accessible(page)


def test_overview_while_the_run_trains_counts_on_without_being_loaded_again(open_page: OpenPage) -> None:
    page = open_page("/runs/tides")
    badge(page, "live")
    page.evaluate("window.isSamePage = true")
    wait_for_step(page, step_of(page) + 3)
    assert page.evaluate("window.isSamePage")


def test_overview_that_is_paused_stands_still_and_goes_on(open_page: OpenPage, console: ConsoleCluster) -> None:
    page = open_page("/runs/tides")
    badge(page, "live")
    page.keyboard.press(".")
    badge(page, "paused")
    shown = step_of(page)
    console.wait_for_step(shown + 4)
    assert step_of(page) == shown
    page.keyboard.press(".")
    badge(page, "live")
    wait_for_step(page, shown + 4)


def test_planner_that_is_killed_and_comes_back_leaves_the_page_as_it_was(
    open_page: OpenPage, console: ConsoleCluster, complaints: Complaints
) -> None:
    complaints.expected += [*GONE, "503"]
    sources = open_page("/runs/tides/sources")
    sources.get_by_label("Search sources by name").fill("boo")
    expect(sources).to_have_url(re.compile("q=boo"))
    overview = sources.context.new_page()
    overview.goto(f"{console.url}/runs/tides")
    badge(overview, "live")
    before = step_of(overview)

    console.kill_planner()
    badge(overview, "offline")
    badge(sources, "offline")
    expect(overview.get_by_text("The planner cannot be reached")).to_be_visible()
    assert step_of(overview) >= before
    console.revive()

    badge(overview, "live")
    wait_for_step(overview, before + 4)
    badge(sources, "live")
    expect(sources.get_by_label("Search sources by name")).to_have_value("boo")
    expect(sources.get_by_role("row").filter(has_text="books")).to_have_count(1)
    expect(sources.get_by_text("loadmaster add-source RUN.yaml NAME --of tides --planner http")).to_be_visible()
    expect(sources.get_by_text("The planner cannot be reached")).to_have_count(0)


def test_keys_lead_to_screens_and_not_while_one_types(open_page: OpenPage, console: ConsoleCluster) -> None:
    page = open_page("/runs/tides")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page).to_have_url(f"{console.url}/runs/tides/checkpoints")
    expect(page).to_have_title("Checkpoints · tides · Loadmaster")
    page.keyboard.press("g")
    page.keyboard.press("u")
    expect(page.get_by_label("Search sources by name")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("gc?.")
    expect(page.get_by_label("Search sources by name")).to_have_value("gc?.")
    expect(page).to_have_url(re.compile("/runs/tides/sources"))


def test_single_keys_that_are_turned_off_do_nothing(open_page: OpenPage, check_accessible, console) -> None:
    page = open_page("/runs/tides")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Pause live numbers")
    check_accessible(page)
    dialog.get_by_role("switch", name="Single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("?")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(dialog).to_have_count(0)
    expect(page).to_have_url(f"{console.url}/runs/tides")


def test_palette_goes_where_one_types(open_page: OpenPage, check_accessible, console: ConsoleCluster) -> None:
    page = open_page("/runs")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Command").fill("tid")
    expect(page.get_by_role("option", name=re.compile("tides"))).to_have_attribute("aria-selected", "true")
    check_accessible(page)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{console.url}/runs/tides")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Command").fill("sour")
    expect(page.get_by_role("option", name=re.compile("Sources"))).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{console.url}/runs/tides/sources")


def test_first_tab_offers_to_skip_to_the_content(open_page: OpenPage) -> None:
    page = open_page("/runs")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_theme_that_is_chosen_holds_after_loading_again(open_page: OpenPage) -> None:
    page = open_page("/runs")
    scheme = page.locator("html")
    page.get_by_role("button", name=re.compile("Theme: auto")).click()
    page.get_by_role("button", name=re.compile("Theme: light")).click()
    expect(scheme).to_have_attribute("data-mantine-color-scheme", "dark")
    page.reload()
    expect(scheme).to_have_attribute("data-mantine-color-scheme", "dark")
    expect(page.get_by_role("button", name=re.compile("Theme: dark"))).to_be_visible()


def test_screens_on_narrow_windows_do_not_scroll_sideways(open_page: OpenPage) -> None:
    """Wide tables may, inside the content."""
    too_wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    wide = """() => [...document.querySelectorAll('body *')].filter(
        e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 90)).slice(0, 12)"""
    page = open_page("/runs", role="admin")
    for path in SCREENS:
        go_to(page, path)
        for width in (800, 400):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate(too_wide) == 0, f"{path} at {width} px: {page.evaluate(wide)}"


def test_address_that_is_no_page_says_so_and_leads_back(open_page: OpenPage, complaints: Complaints) -> None:
    complaints.expected.append("401")
    page = open_page("/no/such/page", role=None)
    expect(page.get_by_text("Nothing is at this address.")).to_be_visible()
    page.get_by_role("link", name="All runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_run_that_is_not_there_is_told_in_the_planners_words(open_page: OpenPage, complaints: Complaints) -> None:
    complaints.expected.append("404")
    page = open_page("/runs/nobody")
    expect(page.get_by_role("alert")).to_contain_text("nobody")
