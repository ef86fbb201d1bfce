"""What the console's screens cost the planner at 4,096 ranks and 306 sources: bytes and CPU of each answer.

A plan log is really planned and recorded; what processes would report is made up by rule and handed to the planner. An
answer must be below 1 MB and take less than 300 ms of CPU: printed are the figures and their ratios to these limits.
`cold` is the first answer after a start, when no step has been decoded yet; the other figures are medians of five.
`event bytes` are what one connection gets in a second while all ranks go on and two are late.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from loadmaster_server.live.changes import StreamFeed
from loadmaster_server.live.hub import Topic

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.big_world import World
from support.recorded import Scale

LIMIT_BYTES, LIMIT_MS = 1_000_000, 300.0
ROUNDS = 5


def measure(make: Callable[[], BaseModel]) -> tuple[float, int]:
    """CPU milliseconds and bytes of an answer, encoding included."""
    start = time.thread_time()
    body = make().model_dump_json()
    return 1e3 * (time.thread_time() - start), len(body.encode())


def measure_events(world: World) -> dict[str, float]:
    """A connection's bytes and the ticker's CPU a second, while steps go by."""
    feed = world.planner.live.open_feed(Topic(world.key.run, "train"))
    assert isinstance(feed, StreamFeed)
    ticks, total, ranks = 40, 0, 0
    list(feed.tick(0))
    spent = 0.0
    for number in range(1, ticks + 1):
        if number % 4 == 0:
            world.beat()
        start = time.thread_time()
        events = [(name, event.model_dump_json()) for name, event in feed.tick(number)]
        spent += time.thread_time() - start
        total += sum(len(body) for _, body in events)
        ranks += sum(len(json.loads(body)["rank"]) for name, body in events if name == "ranks")
    return {"event_bytes_per_s": 2 * total / ticks, "tick_ms": 1e3 * spent / ticks, "ranks_told": ranks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a log of 40 steps instead of 160")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    args = parser.parse_args()
    scale = Scale(num_steps=40, acknowledged=20, ahead=16) if args.quick else Scale()
    out: dict[str, float] = {}
    print(f"{scale.world_size} ranks, {scale.num_sources} sources, {scale.num_steps} steps")
    print(f"{'':20}{'bytes':>10}{'of limit':>10}{'cold ms':>10}{'CPU ms':>10}{'of limit':>10}")
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), scale)
        for name, make in world.answers().items():
            cold_ms, size = measure(make)
            cpu_ms = statistics.median(measure(make)[0] for _ in range(ROUNDS))
            print(
                f"{name:20}{size:10,}{size / LIMIT_BYTES:10.3f}{cold_ms:10.1f}{cpu_ms:10.1f}{cpu_ms / LIMIT_MS:10.3f}"
            )
            out |= {f"{name}_bytes_over_limit": size / LIMIT_BYTES, f"{name}_ms_over_limit": cpu_ms / LIMIT_MS}
            out[f"{name}_cold_ms"] = cold_ms
        events = measure_events(world)
        print("events: " + ", ".join(f"{name} {value:,.1f}" for name, value in events.items()))
        world.close()
    if args.json:
        print(json.dumps(out | events))


if __name__ == "__main__":
    main()
