"""Server-sent events of a real planner: changes only, one stream a tab, gone at once when the planner stops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from loadmaster_flight.wire.errors import NotFoundError, UnavailableError
from loadmaster_server.live import hub as hub_module
from loadmaster_server.live.event_schemas import LiveEvents, ResyncEvent
from loadmaster_server.live.event_stream import EventStream
from loadmaster_server.live.hub import EventHub, Subscriber, Topic
from loadmaster_server.store import GenerationState
from support.live_run import LiveRun
from support.synthetic import wait_for

T = TypeVar("T")
TOPIC = Topic("run", "train")
STOP_S = 0.3


def apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread: a browser test in this process leaves its own loop running in the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def test_events_when_a_step_is_acknowledged_then_progress_follows_and_every_event_has_its_model(
    live_run: LiveRun,
) -> None:
    with live_run.events() as reader:
        hello = reader.wait_named("hello")[0]
        live_run.acknowledge(2, waits=[0.1, 0.3])
        moved = wait_for(lambda: [e for e in reader.named("progress") if e["waits"]], what="the waits to be told")[0]
    assert reader.events[0][0] == "hello"
    assert moved["acknowledged"] == 2
    assert moved["waits"] == [[1, 0.3, 0.2]]
    for name, data in reader.events:
        LiveEvents.model_fields[name].annotation.model_validate(data)  # type: ignore[union-attr]
    assert len(set(reader.ids)) == len(reader.events)
    assert all(one.startswith(hello["epoch"]) for one in reader.ids)


def test_events_when_nothing_changes_then_nothing_is_sent(live_run: LiveRun) -> None:
    live_run.acknowledge(2)
    with live_run.events() as reader:
        reader.wait_named("hello")
        wait_for(lambda: reader.num_beats, what="a heartbeat comment")
        num = len(reader.events)
        wait_for(lambda: reader.num_beats >= 2, what="another one")
    assert reader.events[num:] == []


def test_events_when_one_rank_falls_behind_then_it_alone_is_told_of(make_live_run: Callable[..., LiveRun]) -> None:
    run = make_live_run(4)
    run.acknowledge(2)
    with run.events() as reader:
        reader.wait_named("hello")
        run.acknowledge(3)
        run.acknowledge(4, acknowledged=[4, 4, 3, 4], moved_s=[0.1, 0.1, 9.0, 0.1])
        told = wait_for(
            lambda: [e for e in reader.named("ranks") if "behind" in e["state"]], what="the rank to be told of"
        )[0]
    assert told["rank"] == [2]
    assert told["behind"] == [1]
    assert {rank for event in reader.named("ranks") for rank in event["rank"]} == {2}


def test_events_when_a_schedule_is_published_then_schedule_and_audit_are_told(live_run: LiveRun) -> None:
    newest = live_run.read("/schedule")
    with live_run.events() as reader:
        reader.wait_named("hello")
        body = {"author": "ada", "message": "more code", "schedule": newest["schedule"]}
        body["schedule"]["weights"]["code"] = 2
        live_run.post("/revisions", body, if_match='"0"')
        audit = reader.wait_named("audit")[0]
        schedule = reader.wait_named("schedule")[0]
    assert (audit["author"], audit["action"], audit["revision"]) == ("ada", "published", 1)
    assert schedule["revision"] == 1


def test_events_when_no_run_is_named_then_all_runs_are_told_of(live_run: LiveRun) -> None:
    with live_run.events(None) as reader:
        reader.wait_named("hello")
        live_run.cluster.open(2, word="again", step=0, parent=0)
        generations = live_run.cluster.server.planner.store.generations
        generations.stop(generations.current()[0].key, GenerationState.PAUSED, "run-paused", "too many bad rows")
        told = wait_for(lambda: [e for e in reader.named("run") if e["state"] == "paused"], what="the pause")[0]
    assert told["run"] == "run"
    assert told["reason"] == "too many bad rows"


def test_events_when_the_run_is_not_there_then_it_is_refused(live_run: LiveRun) -> None:
    for query in ({"run": "nowhere"}, {"run": "run", "stream": "nowhere"}):
        with pytest.raises(NotFoundError, match="nowhere"):
            live_run.cluster.client.request("GET", "/events", query=query)
    assert live_run.cluster.server.planner.stats()["event_streams"] == 0


def test_events_when_the_planner_stops_then_they_end_at_once(live_run: LiveRun) -> None:
    with live_run.events() as one, live_run.events(None) as two:
        one.wait_named("hello")
        two.wait_named("hello")
        start_s = time.monotonic()
        stopping = threading.Thread(target=live_run.cluster.server.stop)
        stopping.start()
        assert one.wait_over(5)
        assert two.wait_over(5)
        took_s = time.monotonic() - start_s
        stopping.join()
    assert took_s < STOP_S + _slowness()


def test_events_when_many_are_connected_then_none_has_a_thread(live_run: LiveRun) -> None:
    planner = live_run.cluster.server.planner
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(live_run.events()) for _ in range(5)]
        for reader in readers:
            reader.wait_named("hello")
        before = _server_threads()
        readers += [stack.enter_context(live_run.events()) for _ in range(20)]
        for reader in readers:
            reader.wait_named("hello")
        assert planner.stats()["event_streams"] == 25
        assert _server_threads() <= before + 2
        live_run.acknowledge(1)
        for reader in readers:
            reader.wait_named("progress")
    wait_for(lambda: planner.stats()["event_streams"] == 0, what="the connections to be let go")


def test_events_when_the_planner_restarts_then_a_new_connection_has_another_epoch(live_run: LiveRun) -> None:
    with live_run.events() as reader:
        first = reader.wait_named("hello")[0]["epoch"]
        live_run.cluster.restart()
        assert reader.wait_over(5)
    with live_run.events() as reader:
        assert reader.wait_named("hello")[0]["epoch"] != first


@pytest.mark.slow
def test_ticks_when_a_stream_is_open_for_ten_minutes_then_memory_stays(live_run: LiveRun) -> None:
    """Ten minutes of ticks, as fast as they go, of a run that moves and a reader that reads."""
    planner = live_run.cluster.server.planner
    key = planner.store.generations.current()[0].key
    feed = planner.live.open_feed(TOPIC)
    list(feed.tick(0))
    blocks, sent = [], 0
    for number in range(1, 1201):
        if number % 300 == 0:
            planner.store.generations.acknowledge(key, number // 300)
            planner.watch.acknowledged(key, number // 300)
        sent += sum(1 for _ in feed.tick(number))
        if number in (600, 1200):
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    assert sent >= 4
    assert blocks[1] - blocks[0] < 5000


def test_slow_reader_when_too_much_waits_then_it_is_told_to_resync_and_the_loss_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_module, "MAX_QUEUED", 3)

    async def read() -> list[tuple[list[bytes], int]]:
        hub = EventHub()
        slow, quick = hub.subscribe(TOPIC), hub.subscribe(TOPIC)
        for number in range(6):
            hub.publish(TOPIC, "resync", ResyncEvent(dropped=number))
            assert len((await quick.take(1))[0]) == 1
        stats = hub.stats()
        assert stats["events_dropped"] == 4
        assert stats["event_streams"] == 2
        return [await slow.take(1), await slow.take(0.01)]

    (frames, dropped), nothing = apart(read())
    assert dropped == 4
    assert [json.loads(frame.split(b"data: ")[1])["dropped"] for frame in frames] == [4, 5]
    assert nothing == ([], 0)


def test_stream_when_events_were_dropped_then_resync_comes_before_what_is_left() -> None:
    async def read() -> list[bytes]:
        hub = EventHub()
        subscriber = hub.subscribe(TOPIC)
        stream = EventStream(hub, subscriber)
        for _ in range(hub_module.MAX_QUEUED + 1):
            hub.publish(TOPIC, "run", ResyncEvent(dropped=0))
        hub.close()
        return [bytes(part) async for part in stream.body_iterator]  # type: ignore[arg-type]

    parts = apart(read())
    assert b"event: hello" in parts[0]
    assert b"event: resync" in parts[1]
    assert f'"dropped":{hub_module.MAX_QUEUED + 1}'.encode() in parts[1]


def test_subscribe_when_there_are_too_many_or_the_planner_stops_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_SUBSCRIBERS", 1)

    async def subscribe() -> Subscriber:
        hub = EventHub()
        first = hub.subscribe(TOPIC)
        with pytest.raises(UnavailableError, match="event streams are open"):
            hub.subscribe(TOPIC)
        hub.close()
        with pytest.raises(UnavailableError, match="stopping"):
            hub.subscribe(TOPIC)
        return first

    assert apart(subscribe()).is_closed


def _server_threads() -> int:
    """Threads that are not the test's own readers."""
    return sum(thread.name != "test_read" for thread in threading.enumerate())


def _slowness() -> float:
    """What this machine takes for waking a thread now: on a loaded one the limit would measure the load."""
    start_s = time.monotonic()
    for _ in range(5):
        thread = threading.Thread(target=time.monotonic)
        thread.start()
        thread.join()
    return 20 * (time.monotonic() - start_s)
