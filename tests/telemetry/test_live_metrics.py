"""What real processes answer to a scrape, as Prometheus's own parser reads it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence

import pytest

from loadmaster_flight.constructor import metrics as constructor
from loadmaster_flight.loader import metrics as loader
from loadmaster_flight.telemetry.metrics import Kind, Metric
from loadmaster_flight.wire.errors import UnauthenticatedError
from loadmaster_flight.wire.flight import FlightPeer
from loadmaster_flight.wire.tickets import MeasureTicket, sign
from loadmaster_server import monitoring
from support.synthetic import wait_for

from .conftest import ROWS, STEPS, Plane

pytestmark = pytest.mark.processes
STREAM = {"run": "watched", "stream": "train"}
DEFINED: dict[str, Sequence[Metric]] = {
    "planner": monitoring.METRICS,
    "loader": loader.METRICS,
    "constructor": constructor.METRICS,
}


@pytest.mark.parametrize("role", DEFINED)
def test_metrics_when_scraped_then_each_is_defined_with_its_type_and_labels(plane: Plane, role: str) -> None:
    found = plane.scrape(role)
    for metric in DEFINED[role]:
        name = metric.name.removesuffix("_total")
        if name in found.types:
            assert found.types[name] == metric.kind.value
        sample = f"{metric.name}_sum" if metric.kind is Kind.HISTOGRAM else metric.name
        for labels, _ in found.samples.get(sample, []):
            assert set(labels) == set(metric.labels)
    known = {metric.name.removesuffix("_total") for metric in DEFINED[role]} | {"loadmaster_build_info"}
    assert {name for name in found.types if name.startswith("loadmaster_")} <= known
    assert found.labels("loadmaster_build_info", "role") == {role}
    assert found.one("process_resident_memory_bytes") > 1e7


def test_planner_when_a_rank_has_read_then_its_stream_is_told(plane: Plane) -> None:
    found = plane.scrape("planner")
    acknowledged = found.one("loadmaster_stream_steps_acknowledged", **STREAM)
    bound, planned = (found.one(f"loadmaster_stream_steps_{name}", **STREAM) for name in ("bound", "planned"))
    assert STEPS <= acknowledged < bound <= planned
    assert found.one("loadmaster_stream_planning_seconds_count", **STREAM) == planned
    assert 0 < found.one("loadmaster_stream_planning_seconds_sum", **STREAM) < 60
    assert found.one("loadmaster_stream_state", state="open", **STREAM) == 1
    assert found.one("loadmaster_stream_ranks", **STREAM) == 1
    assert found.one("loadmaster_stream_awaited_rank", **STREAM) == -1
    assert found.one("loadmaster_rank_steps_acknowledged", rank="0", **STREAM) == acknowledged
    assert found.one("loadmaster_stream_queue_tokens", **STREAM) > 0
    assert 0.5 < found.one("loadmaster_stream_fill_ratio", **STREAM) <= 1
    for state in ("busy", "idle"):
        assert found.one("loadmaster_plan_loop_seconds_total", state=state, **STREAM) > 0


def test_planner_when_a_rank_has_read_then_tokens_of_sources_add_up_and_follow_the_weights(plane: Plane) -> None:
    found = plane.scrape("planner")
    tokens = {name: found.one("loadmaster_source_tokens", source=name, **STREAM) for name in ("web", "code")}
    assert sum(tokens.values()) == found.one("loadmaster_stream_tokens", **STREAM) > 0
    assert tokens["web"] / sum(tokens.values()) == pytest.approx(0.75, abs=0.02)
    assert found.one("loadmaster_source_weight_ratio", source="web", **STREAM) == pytest.approx(0.75)


def test_planner_when_rows_are_broken_then_the_journal_is_counted_by_source(plane: Plane) -> None:
    told = json.loads(_get(f"{plane.cluster.url}/api/v1/runs/watched/streams/train/left-out"))
    found = plane.scrape("planner")
    assert {row["source"] for row in told} == {"web", "code"}
    for row in told:
        labels = {"source": row["source"], "verdict": row["verdict"]}
        counted = found.one("loadmaster_source_left_out_samples_total", **labels, **STREAM)
        assert row["count"] <= counted <= ROWS


def test_planner_when_it_has_written_checkpoints_then_their_sizes_are_those_of_the_store(plane: Plane) -> None:
    told = json.loads(_get(f"{plane.cluster.url}/api/v1/runs/watched/checkpoints?limit=500"))
    found = plane.scrape("planner")
    newest = told["rows"][0]
    assert found.one("loadmaster_checkpoint_step", **STREAM) == newest["step"]
    assert found.one("loadmaster_checkpoint_size_bytes", **STREAM) == newest["bytes"]
    assert found.one("loadmaster_checkpoint_timestamp_seconds", **STREAM) == pytest.approx(newest["at"])
    assert found.one("loadmaster_plan_log_bytes", part="checkpoints") == told["total_bytes"]
    assert found.one("loadmaster_checkpoint_written_bytes_total") == told["total_bytes"]
    assert found.one("loadmaster_checkpoint_encode_seconds_count") == len(told["rows"])
    planned = found.one("loadmaster_stream_steps_planned", **STREAM)
    assert found.one("loadmaster_plan_log_entries", part="bodies") == planned


def test_planner_when_processes_are_alive_then_actors_and_leases_are_counted(plane: Plane) -> None:
    found = plane.scrape("planner")
    for role in ("loader", "constructor"):
        assert found.one("loadmaster_actors", role=role, state="live") == 1
        assert found.one("loadmaster_actors", role=role, state="silent") == 0
        assert 0 <= found.one("loadmaster_actor_heartbeat_age_seconds", role=role) < 5
    assert found.one("loadmaster_leases", kind="partition", holder="owner") == 2
    assert found.one("loadmaster_leases", kind="dp", holder="owner") == 1


def test_loader_when_it_has_served_then_what_it_read_sent_and_holds_is_told(plane: Plane) -> None:
    found = plane.scrape("loader")
    assert found.one("loadmaster_loader_registered") == 1
    assert found.one("loadmaster_loader_open_sources", run="watched") == 2
    assert found.one("loadmaster_loader_rows_measured_total", run="watched") > STEPS
    assert found.one("loadmaster_loader_sent_steps_total") >= STEPS
    assert found.one("loadmaster_loader_sent_bytes_total") > 1000
    assert found.one("loadmaster_loader_window_bytes", run="watched") > 0
    assert found.one("loadmaster_loader_window_bytes", run="watched") < found.one(
        "loadmaster_loader_window_budget_bytes", run="watched"
    )
    for source in ("web", "code"):
        assert found.one("loadmaster_loader_read_blocks_total", source=source) > 0
        assert found.one("loadmaster_loader_read_bytes_total", source=source) > 1000
        assert found.one("loadmaster_loader_read_errors_total", source=source) == 0
        times = [found.one("loadmaster_loader_read_seconds", source=source, quantile=q) for q in ("0.5", "0.99")]
        assert 0 < times[0] <= times[1]
        bad = found.one("loadmaster_loader_rows_left_out_total", source=source, verdict="bad")
        assert 0 < bad < ROWS
    assert found.one("loadmaster_loader_decode_crashes") == 0


def test_constructor_when_it_has_served_then_builds_buffers_and_waits_are_told(plane: Plane) -> None:
    found = plane.scrape("constructor")
    assert found.one("loadmaster_constructor_registered") == 1
    assert found.one("loadmaster_constructor_build_seconds_count", **STREAM) >= STEPS
    assert found.one("loadmaster_constructor_build_seconds_bucket", le="+Inf", **STREAM) == found.one(
        "loadmaster_constructor_build_seconds_count", **STREAM
    )
    assert found.one("loadmaster_constructor_sent_batches_total", **STREAM) >= STEPS
    assert found.one("loadmaster_constructor_sent_bytes_total", **STREAM) > 4 * 256 * 4 * STEPS
    assert found.one("loadmaster_constructor_ranks", **STREAM) == 1
    assert found.one("loadmaster_constructor_rank_wait_seconds_count", **STREAM) >= STEPS - 1
    steps, limit = (found.one(f"loadmaster_constructor_buffered_steps{end}", **STREAM) for end in ("", "_limit"))
    assert 0 < steps <= limit
    held, budget = (found.one(f"loadmaster_constructor_buffered_bytes{end}", **STREAM) for end in ("", "_budget"))
    assert 0 < held < budget
    assert found.one("loadmaster_constructor_rank_seen_seconds", rank="0", **STREAM) < 60


@pytest.mark.parametrize("role", ["loader", "constructor"])
def test_refusals_when_a_ticket_is_forged_then_they_are_counted_by_code(plane: Plane, role: str) -> None:
    name, code = f"loadmaster_{role}_refusals_total", "UNAUTHENTICATED"
    actors = json.loads(_get(f"{plane.cluster.url}/api/v1/actors"))
    (address,) = [actor["address"] for actor in actors if actor["role"] == role]
    ticket = MeasureTicket(run="watched", source=0, epoch=0, cursors=[[0, 0, 0, 0]], rows_per_lane=1, expires_at=2**33)
    before = sum(plane.scrape(role).all(name, code=code))
    with FlightPeer(address) as peer, pytest.raises(UnauthenticatedError):
        peer.read_all(sign(ticket, b"x" * 32), timeout_s=10)
    assert plane.scrape(role).one(name, code=code) == before + 1


def test_metrics_when_openmetrics_is_asked_for_then_it_comes(plane: Plane) -> None:
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    for url in (plane.cluster.url, f"http://127.0.0.1:{plane.metrics_port}"):
        with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=accept), timeout=20) as answer:
            assert answer.headers["content-type"].startswith("application/openmetrics-text")
            assert answer.read().endswith(b"# EOF\n")


def test_endpoint_when_another_path_is_asked_for_then_not_found(plane: Plane) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        _get(f"http://127.0.0.1:{plane.metrics_port}/")


def test_counters_when_more_is_read_then_they_grow(plane: Plane) -> None:
    before = plane.scrape("constructor").one("loadmaster_constructor_sent_batches_total", **STREAM)
    last = next(plane.stream).step + 4
    for batch in plane.stream:
        if batch.step >= last:
            break
    grown = wait_for(
        lambda: plane.scrape("constructor").one("loadmaster_constructor_sent_batches_total", **STREAM) > before,
        what="batches to be counted",
    )
    assert grown


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        body: bytes = answer.read()
        return body
