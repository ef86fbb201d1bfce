"""Signing in with a browser, and what each role sees of what it may not do."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from support.console_cluster import ConsoleCluster

from .conftest import Complaints

OpenPage = Callable[..., Page]


def test_link_signs_in_once_and_its_code_leaves_the_address(
    console: ConsoleCluster, context: BrowserContext, complaints: Complaints
) -> None:
    page, link = context.new_page(), console.sign_in_link("editor", "eve")
    complaints.listen(page)
    page.goto(link)
    expect(page.get_by_role("button", name="eve editor")).to_be_visible()
    assert "code" not in page.url
    page.get_by_role("button", name="eve editor").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to Loadmaster")).to_be_visible()

    complaints.expected += ["401", "403"]
    page.goto(console.url)
    page.goto(link)
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("heading", name="Sign in to Loadmaster")).to_be_visible()


def test_token_signs_in_and_a_wrong_one_is_refused(
    console: ConsoleCluster, open_page: OpenPage, check_accessible, complaints: Complaints
) -> None:
    complaints.expected += ["401", "403"]
    page = open_page("/sign-in", role=None)
    check_accessible(page)
    page.get_by_label("Token", exact=True).fill("lm_none_such")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token", exact=True).fill(console.token("publisher", "pat"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="pat publisher")).to_be_visible()


def test_viewer_sees_controls_disabled_with_the_reason(open_page: OpenPage) -> None:
    page = open_page("/runs/tides/sources", role="viewer", name="vic")
    retire = page.get_by_role("button", name="Retire books in your draft")
    expect(retire).to_have_attribute("aria-disabled", "true")
    expect(retire).to_have_accessible_description("Needs the role editor; you are viewer")
    retire.focus()
    expect(page.get_by_role("tooltip")).to_have_text("Needs the role editor; you are viewer")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/runs/tides/sources$"))

    page.goto(page.url.replace("/runs/tides/sources", "/access"))
    create = page.get_by_role("button", name="Create token")
    expect(create).to_have_attribute("aria-disabled", "true")
    expect(create).to_have_accessible_description("Needs the role admin; you are viewer")


def test_somebody_who_did_not_sign_in_is_told_to(open_page: OpenPage, complaints: Complaints) -> None:
    complaints.expected.append("401")
    page = open_page("/runs/tides/sources", role=None)
    retire = page.get_by_role("button", name="Retire books in your draft")
    expect(retire).to_have_accessible_description("Sign in as editor to do this")
    page.get_by_role("link", name="Sign in").click()
    expect(page.get_by_role("heading", name="Sign in to Loadmaster")).to_be_visible()


def test_somebody_who_is_signed_in_opens_another_link_and_is_that_one(
    open_page: OpenPage, complaints: Complaints
) -> None:
    complaints.expected.append("403")  # a change by cookie needs that session's token, which the page then reads
    open_page("/runs", role="viewer", name="vic").close()
    page = open_page("/runs", role="editor", name="edna")
    expect(page.get_by_role("button", name="edna editor")).to_be_visible()


def test_source_that_an_editor_retires_is_in_the_draft_and_not_in_the_run(
    open_page: OpenPage, console: ConsoleCluster, complaints: Complaints
) -> None:
    page = open_page("/runs/tides/sources", role="editor", name="edna")
    page.get_by_role("button", name="Retire notes in your draft").click()
    expect(page).to_have_url(re.compile("/runs/tides/schedule"))
    assert "notes" in _get(console, "/runs/tides/drafts/edna")["schedule"]["retired"]
    assert "notes" not in _get(console, "/runs/tides/schedule")["schedule"]["retired"]
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Sources").click()
    page.get_by_role("button", name="Take up again notes in your draft").click()
    expect(page).to_have_url(re.compile("/runs/tides/schedule"))
    assert "notes" not in _get(console, "/runs/tides/drafts/edna")["schedule"]["retired"]


def test_token_that_an_admin_makes_is_shown_once_works_and_is_revoked(
    open_page: OpenPage, console: ConsoleCluster
) -> None:
    page = open_page("/access", role="admin", name="ada")
    page.get_by_label("For", exact=True).fill("nightly job")
    page.get_by_role("button", name="Create token").click()
    expect(page.get_by_role("status").filter(has_text="not shown again")).to_be_visible()
    secret = page.locator("code", has_text=re.compile("^lm_")).inner_text()
    request = urllib.request.Request(f"{console.url}/api/v1/session", headers={"authorization": f"Bearer {secret}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.load(answer)["name"] == "nightly job"

    page.reload()
    row = page.get_by_role("row").filter(has_text="nightly job")
    expect(row).to_contain_text("good")
    assert secret not in page.content()
    row.get_by_role("button", name="Revoke the token of nightly job").click()
    expect(row).to_contain_text("revoked")


def test_audit_shows_who_did_what_and_exports_it(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page("/audit?author=ada", role="admin", name="ada")
    expect(page.get_by_role("row").filter(has_text="ada").first).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    target = tmp_path / "audit.csv"
    download.value.save_as(target)
    header, first, *_ = target.read_text().splitlines()
    assert header == "number,at,author,action,run,revision,message,details"
    assert ",ada," in first


def _get(console: ConsoleCluster, path: str) -> dict:
    with urllib.request.urlopen(f"{console.url}/api/v1{path}", timeout=10) as answer:
        return json.load(answer)
