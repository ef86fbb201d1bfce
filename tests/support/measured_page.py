"""Measures a page of the console by the page's own clock, and what it holds in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from playwright.sync_api import Page, Response

WATCH = """
(() => {
  const look = () => {
    const main = document.querySelector('#main') ?? document.body;
    const isBusy = !main || !main.querySelector('h1') || main.querySelector('.mantine-Skeleton-root');
    if (isBusy || !document.querySelector(window.awaited)) return requestAnimationFrame(look);
    requestAnimationFrame(() => setTimeout(() => { window.interactiveAt = performance.now(); }, 0));
  };
  window.awaited = %r;
  requestAnimationFrame(look);
})()
"""
"""From the start of the navigation until the screen is drawn and the main thread takes events again."""


@dataclass(slots=True)
class Answers:
    """The answers of the API that a page got: path -> bytes of the largest. The stream of events has no end."""

    largest: dict[str, int] = field(default_factory=dict)

    def listen(self, page: Page) -> None:
        """Note answers from now on."""
        page.on("response", lambda response: self._note(response))

    def _note(self, response: Response) -> None:
        path = response.url.split("/api/v1", 1)[-1].split("?")[0]
        if "/api/v1" not in response.url or path == "/events" or not response.ok:
            return
        self.largest[path] = max(self.largest.get(path, 0), len(response.body()))


def interactive_ms(page: Page, url: str, selector: str) -> float:
    """Milliseconds from the navigation until `selector` is there, no skeleton is left, and a task has run since."""
    page.goto("about:blank")
    page.add_init_script(WATCH % selector)
    page.goto(url, wait_until="commit")
    page.wait_for_function("() => window.interactiveAt > 0", timeout=60_000)
    return float(page.evaluate("() => window.interactiveAt"))


def heap_mb(page: Page) -> float:
    """What JavaScript holds after a collection of garbage, in MB."""
    session = page.context.new_cdp_session(page)
    try:
        session.send("HeapProfiler.enable")
        session.send("HeapProfiler.collectGarbage")
        usage = session.send("Runtime.getHeapUsage")
        return float(usage["usedSize"]) / 1e6
    finally:
        session.detach()


def refresh(page: Page, answered: str) -> None:
    """Make the page read everything again, as after a lost connection: live numbers are paused and go on."""
    page.keyboard.press(".")
    page.locator("[data-live=paused]").first.wait_for()
    with page.expect_response(answered):
        page.keyboard.press(".")
        page.locator("[data-live=live]").first.wait_for()
