"""Takes docs/images/*.png from a real run of the demo: starts it, signs in by its link, and looks at its screens.

python console/screenshots.py [--step 24] [--out docs/images]

Needs Chromium and the `dev` extra. Pictures have a palette of 256 colours, so that each stays below 150 kB.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"http://\S+/sign-in#code=\S+")
VIEWPORT = {"width": 1280, "height": 800}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
WAIT_MS = 180_000
MAX_BYTES = 150_000


HIDE_FOLDER = """folder => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replaceAll(folder, "");
}"""
"""Where the checkout is is nobody's business."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture: its name, the path of the screen below the run, the theme, and what must be there first."""

    name: str
    path: str
    theme: str
    ready: str


SHOTS = [
    Shot("overview", "", "light", "section[aria-label='Counters']"),
    Shot("schedule", "/schedule", "dark", "#main svg [role=slider]"),
    Shot("graph", "/graph", "light", ".react-flow__node"),
    Shot("balance", "/balance", "light", "#main .u-over"),
    Shot("sources", "/sources", "dark", "#main tbody tr:nth-child(3)"),
    Shot("steps", "/steps/{step}", "light", "#main article"),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Take all of them; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=24, help="wait until the run has come this far")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    with demo() as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport=VIEWPORT, reduced_motion="reduce")
        page.set_default_timeout(WAIT_MS)
        page.goto(link)
        page.wait_for_url("**/runs")
        origin, run = page.url.removesuffix("/runs"), wait_for_step(page, options.step)
        for shot in SHOTS:
            take(page, f"{origin}/runs/{run}{shot.path.format(step=options.step)}", shot, options.out)
        browser.close()
    return 0


@contextmanager
def demo() -> Iterator[str]:
    """The demo, running; gives the link that it prints."""
    argv = [sys.executable, "-u", str(ROOT / "examples" / "demo.py")]
    named = {**os.environ, "LOGNAME": "you"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=named) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                if found := LINK.search(line):
                    yield found.group()
                    return
            raise SystemExit("the demo ended without a link to sign in with")
        finally:
            process.terminate()
            process.communicate()


def wait_for_step(page: Page, step: int) -> str:
    """Open the only run and wait until it has come this far; gives its name."""
    page.locator("#main tbody a").first.click()
    page.wait_for_url(re.compile(r"/runs/[^/]+$"))
    page.wait_for_selector("section[aria-label='Counters']")
    digits = "Number(document.querySelector('#main dd').innerText.replace(/\\D/g, ''))"
    page.wait_for_function(f"step => {digits} >= step", arg=step)
    return page.url.rsplit("/", 1)[1]


def take(page: Page, url: str, shot: Shot, folder: Path) -> None:
    """One picture.

    Raises:
        SystemExit: It is too large to be committed.
    """
    page.emulate_media(color_scheme=shot.theme)  # type: ignore[arg-type]
    page.goto(url)
    page.wait_for_selector(shot.ready)
    page.wait_for_function("() => !document.querySelector('#main [aria-busy=true], #main .mantine-Skeleton-root')")
    page.wait_for_timeout(1_500)
    page.evaluate(HIDE_FOLDER, f"{ROOT}/")
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    target = folder / f"{shot.name}.png"
    picture.save(target, optimize=True)
    print(f"{target}: {target.stat().st_size / 1000:.0f} kB")
    if target.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{target} must be at most {MAX_BYTES} bytes")


if __name__ == "__main__":
    sys.exit(main())
