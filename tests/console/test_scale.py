"""The console on a run of 4,096 ranks and 306 sources: every screen is there at once, and stays as small as it was."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page

from support.commands import loadmaster_command, wait_until
from support.measured_page import Answers, heap_mb, interactive_ms, refresh
from support.recorded import RecordedActors, Scale, record_in

BLANK = "/nothing-is-here"
MOST_TIMES_BLANK = 8.0
"""How many times as long as a page without content a screen may take: the machine of the test may be busy."""
MOST_BYTES = 1_000_000
SCREENS = {
    "/runs": "#main tbody tr",
    "/runs/scale": "#main dd",
    "/runs/scale/schedule": "#main svg [role=slider]",
    "/runs/scale/revisions": "#main h1",
    "/runs/scale/graph": ".react-flow__node",
    "/runs/scale/mesh": "#main canvas",
    "/runs/scale/balance": "#main .u-over",
    "/runs/scale/sources": "#main tbody tr",
    "/runs/scale/steps/90?rank=2047": "#main article",
    "/runs/scale/checkpoints": "#main tbody tr",
    "/audit": "#main h1",
    "/access": "#main h1",
}
TRIES = 3
WARM_UP, REFRESHES = 10, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A planner process on a recorded log, and what reports to it."""

    url: str
    scale: Scale
    actors: RecordedActors


@pytest.fixture(scope="module")
def recorded(bundle: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """4,096 ranks and 306 sources, all of which the planner hears of."""
    folder, scale = tmp_path_factory.mktemp("recorded"), Scale()
    record_in(folder / "state", scale)
    ready = folder / "ready.json"
    argv = loadmaster_command("planner", "--state-dir", str(folder / "state"), "--ready-file", str(ready))
    with (folder / "planner.log").open("wb") as log:
        process = subprocess.Popen([*argv, "--lease-s", "60", "--parent-pipe"], stdin=subprocess.PIPE, stderr=log)
    try:
        wait_until(ready.exists, timeout_s=60, what="the planner")
        url = json.loads(ready.read_text())["url"]
        with RecordedActors(url, step=scale.acknowledged, last=scale.num_steps - scale.ahead) as actors:
            wait_until(lambda: len(actors.ranks()) == scale.world_size, timeout_s=60, what="all ranks to be assigned")
            yield Recorded(url=url, scale=scale, actors=actors)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)


@pytest.fixture
def fresh_page(browser: Browser, recorded: Recorded) -> Iterator[Page]:
    """A page of its own context: nothing is cached."""
    with browser.new_context() as context:
        yield context.new_page()


@pytest.fixture(scope="module")
def blank_ms(browser: Browser, recorded: Recorded) -> float:
    """Median time of the shell around nothing."""
    return median_ms(browser, recorded.url + BLANK, "h1", Answers())


def median_ms(browser: Browser, url: str, selector: str, answers: Answers) -> float:
    """Median of tries, each in a browser that has nothing cached."""
    times = []
    for _ in range(TRIES):
        with browser.new_context() as context:
            page = context.new_page()
            answers.listen(page)
            times.append(interactive_ms(page, url, selector))
    return statistics.median(times)


def test_recorded_log_has_every_rank_and_source(recorded: Recorded) -> None:
    assert recorded.actors.ranks() == list(range(4096))
    assert recorded.scale.num_sources == 306


@pytest.mark.browser
@pytest.mark.parametrize("path", SCREENS)
def test_screen_at_scale_is_there_about_as_soon_as_an_empty_one(
    path: str, browser: Browser, recorded: Recorded, blank_ms: float, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = Answers()
    took_ms = median_ms(browser, recorded.url + path, SCREENS[path], answers)
    largest = max(answers.largest.values(), default=0)
    with capsys.disabled():
        print(f"\n{path}: {took_ms:.0f} ms, an empty page {blank_ms:.0f} ms, largest answer {largest / 1e3:.0f} kB")
    assert took_ms < MOST_TIMES_BLANK * blank_ms
    assert all(size < MOST_BYTES for size in answers.largest.values()), answers.largest


@pytest.mark.browser
@pytest.mark.parametrize("screen", ["mesh", "graph", "balance"])
def test_screen_at_scale_when_refreshed_often_holds_no_more_memory(
    screen: str, fresh_page: Page, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each refresh reads a mesh of 4,096 ranks anew; a tenth of one kept each time would show."""
    page, address = fresh_page, f"/runs/scale/{screen}"
    page.goto(recorded.url + address)
    page.locator(SCREENS[address]).first.wait_for()
    page.locator("[data-live=live]").wait_for()
    for _ in range(WARM_UP):
        refresh(page, f"**{address}?**")
    before = heap_mb(page)
    for _ in range(REFRESHES):
        recorded.actors.move()
        refresh(page, f"**{address}?**")
    after = heap_mb(page)
    with capsys.disabled():
        print(f"\n{screen}: {before:.1f} MB, after {REFRESHES} refreshes {after:.1f} MB")
    assert after - before < 0.1 * REFRESHES
