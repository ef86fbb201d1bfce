"""What the planner tells Prometheus of ranks that wait for each other."""

from __future__ import annotations

import pytest

from loadmaster_server.monitoring import collecting
from loadmaster_server.store import GenerationState
from support.live_run import LiveRun
from support.scraped import Scraped, scrape
from support.synthetic import wait_for

STREAM = {"run": "run", "stream": "train"}


def _told(live_run: LiveRun, step: int) -> Scraped:
    """The metrics, once the planner has heard of a step's acknowledgement."""
    url = f"{live_run.cluster.server.url}/metrics"

    def read() -> Scraped | None:
        found = scrape(url)
        return found if found.all("loadmaster_stream_steps_acknowledged", **STREAM) == [step] else None

    found: Scraped = wait_for(read, what=f"step {step} to be told of")
    return found


def test_metrics_when_a_rank_is_silent_and_the_run_paused_then_rank_waits_and_state_are_told(
    live_run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_run.acknowledge(1, waits=[0.25, 0.75], seen_s=[0.1, 40.0])
    found = _told(live_run, 1)
    assert found.one("loadmaster_stream_awaited_rank", **STREAM) == 1
    assert found.one("loadmaster_stream_ranks_awaited", state="silent", **STREAM) == 1
    assert found.one("loadmaster_stream_ranks_awaited", state="behind", **STREAM) == 0
    assert found.one("loadmaster_stream_wait_seconds", of="max", **STREAM) == 0.75
    assert found.one("loadmaster_stream_wait_seconds", of="mean", **STREAM) == 0.5
    assert found.one("loadmaster_rank_wait_seconds", rank="0", **STREAM) == 0.25
    assert found.one("loadmaster_rank_seen_seconds", rank="1", **STREAM) >= 40
    monkeypatch.setattr(collecting, "MAX_RANKS", 1)
    many = _told(live_run, 1)
    assert not [name for name in many.samples if name.startswith("loadmaster_rank_")]
    assert many.one("loadmaster_stream_wait_seconds", of="max", **STREAM) == 0.75
    store = live_run.cluster.server.planner.store
    (generation,) = store.generations.live()
    store.generations.stop(generation.key, GenerationState.PAUSED, "RUN_PAUSED", "too many bad rows")
    paused = _told(live_run, 1)
    states = {state: paused.one("loadmaster_stream_state", state=state, **STREAM) for state in ("open", "paused")}
    assert states == {"open": 0, "paused": 1}
    assert paused.one("loadmaster_stream_awaited_rank", **STREAM) == -1
