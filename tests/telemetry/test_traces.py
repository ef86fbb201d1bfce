"""Traces of a step: spans of four processes that join, and nothing where nobody asks for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from loadmaster_flight.wire.tracing import ROOT, StepPlace, ids_of
from support.collector import Span
from support.synthetic import wait_for

from .conftest import Plane

STEP = 3
SERVICES = {
    "plan": "planner",
    "measure": "planner",
    "bind": "planner",
    "materialize": "loader",
    "build": "constructor",
    "gather": "constructor",
    "assemble": "constructor",
    "serve": "constructor",
    "fetch": "trainer",
}


@pytest.fixture
def spans(plane: Plane) -> dict[str, Span]:
    """The spans of a step by name, once all have come."""
    needed = SERVICES.keys() - {"measure"}  # what is measured ahead needs no asking
    wait_for(lambda: needed <= {span.name for span in plane.collector.trace(STEP)}, what="all spans of a step")
    return {span.name: span for span in plane.collector.trace(STEP)}


@pytest.mark.processes
def test_step_when_four_processes_work_on_it_then_their_spans_are_one_trace(spans: dict[str, Span]) -> None:
    trace_id, root_id = ids_of(StepPlace("watched", "train", 0, STEP))
    assert {span.trace_id for span in spans.values()} == {f"{trace_id:032x}"}
    assert (spans[ROOT].span_id, spans[ROOT].parent_id) == (f"{root_id:016x}", "")
    parents = {"measure": ROOT, "gather": "build", "assemble": "build"}
    for name, span in spans.items():
        assert span.service == f"loadmaster-{SERVICES[name]}"
        assert span.start_ns <= span.end_ns
        if name != ROOT:
            assert span.parent_id == spans[parents.get(name, ROOT)].span_id
        place = {key: span.attributes[f"loadmaster.{key}"] for key in ("run", "stream", "generation", "step")}
        assert place == {"run": "watched", "stream": "train", "generation": 0, "step": STEP}


@pytest.mark.processes
def test_step_when_it_is_served_then_its_spans_follow_each_other_and_name_the_rank(spans: dict[str, Span]) -> None:
    begun = [spans[name].start_ns for name in ("plan", "bind", "build", "gather", "materialize", "assemble", "serve")]
    assert begun == sorted(begun)
    assert spans["plan"].end_ns <= spans["bind"].end_ns
    assert spans["gather"].start_ns <= spans["materialize"].start_ns <= spans["materialize"].end_ns
    assert spans["materialize"].end_ns <= spans["gather"].end_ns <= spans["assemble"].start_ns
    assert spans["serve"].attributes["loadmaster.rank"] == spans["fetch"].attributes["loadmaster.rank"] == 0
    assert spans["fetch"].end_ns >= spans["serve"].start_ns


@pytest.mark.processes
def test_measure_when_the_planner_asked_for_rows_then_it_is_within_the_plan(plane: Plane) -> None:
    def measured() -> list[tuple[Span, Span]]:
        """Each with the plan that it belongs to, of steps whose plan has come."""
        roots = {span.span_id: span for span in list(plane.collector.spans) if span.name == ROOT}
        found = [span for span in list(plane.collector.spans) if span.name == "measure" and span.parent_id in roots]
        return [(span, roots[span.parent_id]) for span in found]

    for span, root in wait_for(measured, what="metadata to be asked for"):
        assert span.trace_id == root.trace_id
        assert root.start_ns <= span.start_ns <= span.end_ns <= root.end_ns


def test_ids_when_anything_differs_then_so_do_they() -> None:
    place = StepPlace("run", "train", 0, 7)
    others = [place._replace(run="r"), place._replace(stream="t"), place._replace(generation=1), place._replace(step=8)]
    others.append(StepPlace("ru", "ntrain", 0, 7))
    assert ids_of(place) == ids_of(StepPlace("run", "train", 0, 7))
    assert (
        len({ids_of(each)[0] for each in [place, *others]}) == len({ids_of(each)[1] for each in [place, *others]}) == 6
    )


def _run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    env = clean | {"PYTHONPATH": os.pathsep.join(sys.path)} | environ
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60, check=True)


START = """
import sys, time
from loadmaster_flight.wire.tracing import *
from loadmaster_flight.wire.tracing import StepPlace, configure_tracing, record_step, shutdown_tracing, step_span
"""


def test_tracing_when_nobody_asks_for_it_then_nothing_of_it_is_imported() -> None:
    code = (
        START
        + """
assert not configure_tracing("loader")
with step_span("build", StepPlace("r", "s", 0, 1)):
    record_step("serve", StepPlace("r", "s", 0, 1), time.time_ns())
shutdown_tracing()
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    )
    assert _run(code).stdout == "[]\n"
    assert _run(code, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9", OTEL_SDK_DISABLED="true").stdout == "[]\n"


def test_tracing_when_the_extra_is_missing_then_it_says_what_to_install() -> None:
    code = (
        START
        + """
sys.modules["opentelemetry"] = None
assert not configure_tracing("loader")
with step_span("build", StepPlace("r", "s", 0, 1)):
    print("went on")
"""
    )
    ended = _run(code, OTEL_TRACES_EXPORTER="otlp")
    assert ended.stdout == "went on\n"
    assert "pip install 'loadmaster[otel]'" in ended.stderr


def test_tracing_when_a_share_of_traces_is_sampled_then_a_trace_is_taken_as_a_whole() -> None:
    code = (
        START
        + """
assert configure_tracing("loader")
for step in range(60):
    place = StepPlace("r", "s", 0, step)
    if step % 2:
        record_step("serve", place, time.time_ns())
    with step_span("plan", place):
        pass
    with step_span("build", place), step_span("gather", place):
        pass
    if not step % 2:
        record_step("serve", place, time.time_ns())
shutdown_tracing(30)
"""
    )
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.3"}
    text = _run(code, OTEL_TRACES_EXPORTER="console", **sampler).stdout
    decoder, at, steps = json.JSONDecoder(), 0, dict[str, set[int]]()
    while at < len(text):
        span, end = decoder.raw_decode(text, at)
        steps.setdefault(span["name"], set()).add(span["attributes"]["loadmaster.step"])
        at = end + 1
    assert set(steps) == {"plan", "build", "gather", "serve"}
    assert len({frozenset(found) for found in steps.values()}) == 1
    assert 5 < len(steps["plan"]) < 40
