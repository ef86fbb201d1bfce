"""What the console holds in a browser over ten minutes of a run of 4,096 ranks and 306 sources.

A planner process serves a recorded plan log; the ranks go on by a step every few seconds, and the screen is one of
those that have the most to hold. Printed each minute: the JavaScript heap after a collection of garbage, and the nodes
of the document. Needs `make console` and a Chromium.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.commands import loadmaster_command, wait_until
from support.measured_page import heap_mb
from support.recorded import RecordedActors, Scale, record_in

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
]
STEP_S = 4.0
SCREENS = {"mesh": "#main canvas", "graph": ".react-flow__node", "balance": "#main .u-over"}
"""Screen -> what is there once it shows what it is for."""


@contextmanager
def planner(folder: Path, scale: Scale) -> Iterator[str]:
    """A planner process on the recorded log."""
    ready = folder / "ready.json"
    argv = loadmaster_command("planner", "--state-dir", str(folder / "state"), "--ready-file", str(ready))
    process = subprocess.Popen(
        [*argv, "--lease-s", "60", "--parent-pipe"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(ready.exists, timeout_s=60, what="the planner")
        yield json.loads(ready.read_text())["url"]
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(20)


def watch(page: Page, actors: RecordedActors, minutes: int) -> list[float]:
    """Heap at the start and after each minute, in MB, while the run goes on."""
    heaps = []
    for minute in range(minutes + 1):
        until_s = time.monotonic() + (60.0 if minute else 10.0)
        while time.monotonic() < until_s:
            page.wait_for_timeout(1000 * STEP_S)
            actors.move()
        heaps.append(heap_mb(page))
        nodes = page.evaluate("() => document.getElementsByTagName('*').length")
        print(f"{minute:8} min{heaps[-1]:10.1f} MB{nodes:10,} nodes", flush=True)
    return heaps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10, help="how long each screen is watched")
    parser.add_argument("--screens", nargs="+", choices=SCREENS, default=["mesh"])
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    args = parser.parse_args()
    steps = int((args.minutes + 1) * 60 / STEP_S) * len(args.screens) + 1
    scale = Scale(num_steps=80 + steps + 48, acknowledged=80, ahead=48)
    out: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        print(f"recording {scale.num_steps} steps of {scale.world_size:,} ranks and {scale.num_sources} sources")
        record_in(folder / "state", scale)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        with planner(folder, scale) as url, RecordedActors(url, step=80, last=80 + steps) as actors:
            wait_until(lambda: len(actors.ranks()) == scale.world_size, timeout_s=60, what="all ranks")
            for screen in args.screens:
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(f"{url}/runs/{scale.run}/{screen}")
                page.locator(SCREENS[screen]).first.wait_for()
                print(screen)
                heaps = watch(page, actors, args.minutes)
                out[f"heap_growth_mb_{screen}"] = round(heaps[-1] - heaps[0], 2)
                out[f"heap_mb_{screen}"] = round(heaps[-1], 1)
                page.close()
        browser.close()
    print(", ".join(f"{name} {value}" for name, value in out.items()))
    if args.json:
        print(json.dumps(out))


if __name__ == "__main__":
    main()
