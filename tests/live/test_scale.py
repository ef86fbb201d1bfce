"""4,096 ranks, 512 constructors and 306 sources: no answer is large, none takes long, and events tell what changed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from loadmaster_server.live.hub import Topic
from support.big_world import LATE, World
from support.recorded import Scale

MAX_BYTES, MAX_S = 1_000_000, 0.3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Made once: planning its steps takes some seconds."""
    made = World(tmp_path_factory.mktemp("world"), Scale(num_steps=16, acknowledged=2, ahead=4))
    yield made
    made.close()


@pytest.mark.slow
def test_answers_when_there_are_4096_ranks_and_306_sources_then_each_is_small_and_cheap(world: World) -> None:
    for name, make in world.answers().items():
        took_s = []
        for _ in range(3):
            start_s = time.thread_time()
            body = make().model_dump_json()
            took_s.append(time.thread_time() - start_s)
        assert len(body.encode()) < MAX_BYTES, name
        assert min(took_s) < MAX_S, name


@pytest.mark.slow
def test_ranks_when_all_go_on_and_two_are_late_then_these_alone_are_told_of(world: World) -> None:
    feed = world.planner.live.open_feed(Topic(world.key.run, "train"))
    world.beat()  # or all were silent until now
    list(feed.tick(0))
    told: set[int] = set()
    for number in (1, 2, 3, 5, 6, 7):  # every fourth tick tells of waits too
        world.late = LATE if number < 4 else (*LATE, 9)
        world.beat()
        events = dict(feed.tick(number))
        told |= set(json.loads(events["ranks"].model_dump_json())["rank"]) if "ranks" in events else set()
    assert told == {9}
