"""A live run, a browser that looks at it, and the checks that every screen must pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, expect

from support.console_cluster import ConsoleCluster, live_cluster
from support.editing import Editor
from support.schedule_page import SchedulePage

ROOT = Path(__file__).parents[2]
AXE = ROOT / "console" / "ui" / "node_modules" / "axe-core" / "axe.min.js"
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
COLOUR_RULES = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Until then, colours with a transition have the value of the other theme."""
SHOW_THEME = """theme => new Promise(shown => {
    document.documentElement.setAttribute('data-mantine-color-scheme', theme);
    requestAnimationFrame(() => requestAnimationFrame(shown));
})"""
SCALE = Path(__file__).with_name("test_scale.py")
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What opens a page needs a browser; CI must have one."""
    for item in items:
        if item.path == SCALE and not item.config.getoption("--scale"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: --scale"))
        if not {"page", "open_page", "browser"}.intersection(getattr(item, "fixturenames", ())):
            continue
        item.add_marker("browser")
        if not CHROMIUM and not os.environ.get("CI"):
            item.add_marker(pytest.mark.skip(reason="no chromium on this machine: apt-get install chromium"))


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """The system's Chromium; pytest-playwright asks for this."""
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "headless": True, "args": FLAGS}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    """Without transitions, in the middle of which colours have too little contrast; pytest-playwright asks for this."""
    return {**browser_context_args, "reduced_motion": "reduce"}


@pytest.fixture(scope="session")
def bundle() -> None:
    """The console's bundle, built from what is in the checkout."""
    subprocess.run([sys.executable, str(ROOT / "console" / "build.py"), "bundle"], check=True, stdout=sys.stderr)


@pytest.fixture(scope="package")
def console(bundle: None, tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path) -> Iterator[ConsoleCluster]:
    """One live run for all tests: planner, two loaders, two constructors, four ranks that read slowly."""
    with live_cluster(tmp_path_factory.mktemp("console"), tokenizer_file) as cluster:
        yield cluster


@dataclass  # no slots: playwright keeps its wrappers on it
class Complaints:
    """What pages said on the browser's console. Tests that break something on purpose say what to expect."""

    expected: list[str] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        """Note the errors of a page from now on."""
        page.on("console", lambda message: self._on_message(message))
        page.on("pageerror", lambda error: self.heard.append(f"uncaught: {error}"))

    def left(self) -> list[str]:
        """Those that nobody expected."""
        return [text for text in self.heard if not any(part in text for part in self.expected)]

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.heard.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """Errors on the browser's console; those that were not expected fail the test."""
    noted = Complaints()
    yield noted
    assert not noted.left()


@pytest.fixture
def sign_in(console: ConsoleCluster) -> Callable[..., None]:
    """Signs a page in by a one-time link: `sign_in(page, "editor", name="ada")`."""

    def enter(page: Page, role: str, *, name: str = "") -> None:
        page.goto(console.sign_in_link(role, name or f"{role}-of-the-tests"))
        page.wait_for_url("**/runs")

    return enter


@pytest.fixture
def open_page(
    console: ConsoleCluster, context: BrowserContext, complaints: Complaints, sign_in: Callable[..., None]
) -> Callable[..., Page]:
    """Opens a path of the console, signed in as a role: `open_page("/runs", role="viewer")`; role None: nobody."""

    def open_it(path: str = "/runs", *, role: str | None = "viewer", name: str = "") -> Page:
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        complaints.listen(page)
        if role is not None:
            sign_in(page, role, name=name)
        page.goto(console.url + path)
        expect(page.locator("#main h1").first).to_be_visible()
        return page

    return open_it


@pytest.fixture
def check_accessible() -> Callable[[Page], None]:
    """Runs axe on a page in both themes; any violation of WCAG 2.2 A or AA fails, with what and where.

    Themes differ in colours alone: the rules about anything else are asked once.
    """

    def check(page: Page) -> None:
        for theme, rules in (("light", {"type": "tag", "values": AXE_TAGS}), ("dark", COLOUR_RULES)):
            page.evaluate(SHOW_THEME, theme)
            page.evaluate(TWO_FRAMES)
            violations = find_violations(page, rules)
            assert not violations, f"{page.url} in {theme}:\n" + "\n".join(violations)

    return check


def find_violations(page: Page, rules: dict[str, Any]) -> list[str]:
    """What axe finds: rule, help, and the elements."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate("runOnly => axe.run(document, {runOnly, resultTypes: ['violations']})", rules)
    return [
        f"{rule['id']}: {rule['help']}\n    " + "\n    ".join(_place(node) for node in rule["nodes"][:5])
        for rule in found["violations"]
    ]


def _place(node: dict[str, Any]) -> str:
    reason = " ".join(check["message"] for check in [*node["any"], *node["all"]][:1])
    return f"{' '.join(map(str, node['target']))}: {reason}"


@pytest.fixture
def ada(console: ConsoleCluster) -> Editor:
    """Whose drafts the tests' pages edit, over plain HTTP."""
    return Editor(console.url, author="ada", run=console.run, token=console.token("publisher", "ada"))


@pytest.fixture
def bob(console: ConsoleCluster) -> Editor:
    """Somebody else."""
    return Editor(console.url, author="bob", run=console.run, token=console.token("publisher", "bob"))


@pytest.fixture
def desk(console: ConsoleCluster, ada: Editor) -> Iterator[ConsoleCluster]:
    """The live run with the schedule that it was created with, without drafts and without publishes that wait."""
    tidy_schedule(ada)
    yield console
    console.go_on()


@pytest.fixture
def open_editor(open_page: Callable[..., Page], desk: ConsoleCluster) -> Callable[..., SchedulePage]:
    """Opens the schedule editor: `open_editor("?sel=web", role="viewer")`."""

    def open_it(search: str = "", *, role: str = "publisher", name: str = "ada") -> SchedulePage:
        page = open_page(f"/runs/{desk.run}/schedule{search}", role=role, name=name)
        expect(page.get_by_test_id("canvas")).to_be_visible()
        return SchedulePage(page, desk.run)

    return open_it


def tidy_schedule(editor: Editor) -> None:
    """Back to the schedule of revision 0."""
    for waiting in editor.schedule()["scheduled"]:
        editor.ask("DELETE", f"/scheduled/{waiting['number']}")
    editor.ask("DELETE", "/drafts/ada")
    now, first = editor.schedule(), editor.ask("GET", "/revisions/0").body
    if now["schedule"] != first["schedule"]:
        body = {"message": "as it was", "schedule": first["schedule"]}
        assert editor.ask("POST", "/revisions", body, if_match=now["revision"]).status == 201
