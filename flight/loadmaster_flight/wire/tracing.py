"""Traces of a step (OpenTelemetry): planned, bound, materialized, built, served and fetched by several processes.

Nothing travels for it. The trace of a step has an id that follows from run, stream, generation and step, and so has its
first span, `plan`: whoever works on the step knows both, and its spans join. It is an extra, `otel`: nothing of that is
imported, and `step_span` is a look at a variable, unless the environment names an exporter by OpenTelemetry's own
variables: OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT), or OTEL_TRACES_EXPORTER, `otlp` or `console`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

LOG = logging.getLogger(__name__)
ROOT = "plan"
"""The span that all others of a step are below."""
FLUSH_S = 1.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_NOTHING: AbstractContextManager[None] = nullcontext()
Attribute = str | int | float | bool


class StepPlace(NamedTuple):
    """A step of a generation of a stream of a run."""

    run: str
    stream: str
    generation: int
    step: int


def ids_of(place: StepPlace) -> tuple[int, int]:
    """The ids of a step's trace and of its first span: 128 and 64 bits of a SHA-256, neither of them 0."""
    digest = hashlib.sha256("\0".join(map(str, place)).encode()).digest()
    return int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1


@dataclass(slots=True, kw_only=True)
class _Tracing:
    """`is_own`: the provider is ours to shut down."""

    tracer: Tracer
    provider: TracerProvider
    is_own: bool


_TRACING: _Tracing | None = None
_FORCED: ContextVar[tuple[int, int] | None] = ContextVar("loadmaster_forced_ids", default=None)
_LOCK = threading.Lock()


def is_tracing() -> bool:
    """Whether spans go anywhere."""
    return _TRACING is not None


def configure_tracing(role: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Have spans exported if the environment names an exporter; whether they are. Idempotent.

    In a process that has a tracer provider of its own, such as a trainer's, spans go where that one sends them.

    Args:
        role: Of the process: planner, loader, constructor or trainer.
    """
    global _TRACING
    with _LOCK:
        if _TRACING is not None:
            return True
        kind = _exporter_kind(environ)
        if not kind:
            return False
        try:
            _TRACING = _tracing_of(role, kind, environ)
        except ImportError as error:
            missing = error.name or "opentelemetry"
            LOG.warning("traces go nowhere: %s is missing, pip install 'loadmaster[otel]'", missing)
            return False
    return True


def shutdown_tracing(timeout_s: float = FLUSH_S) -> None:
    """Export what is left, but no longer than this; no span is taken from now on. Idempotent."""
    global _TRACING
    with _LOCK:
        tracing, _TRACING = _TRACING, None
    if tracing is None:
        return
    end = tracing.provider.shutdown if tracing.is_own else tracing.provider.force_flush
    thread = threading.Thread(target=end, name="traces-end", daemon=True)
    thread.start()
    thread.join(timeout_s)


def step_span(name: str, place: StepPlace, **attributes: Attribute) -> AbstractContextManager[None]:
    """A span for as long as the block runs, in this thread; an exception that leaves the block is in it.

    Args:
        name: What is done; `plan` is the first span of the step.
        place: The step.
        attributes: Written with the prefix `loadmaster.`, as the place is.
    """
    return _NOTHING if _TRACING is None else _span(_TRACING, name, place, attributes)


def record_step(name: str, place: StepPlace, start_ns: int, **attributes: Attribute) -> None:
    """A span that began at `start_ns` (of `time.time_ns`) and ends now, where no block is one."""
    if (tracing := _TRACING) is None:
        return
    context = _context(tracing, name, place)
    span = tracing.tracer.start_span(name, context, attributes=_written(place, attributes), start_time=start_ns)
    span.end(time.time_ns())


@contextmanager
def _span(tracing: _Tracing, name: str, place: StepPlace, attributes: Mapping[str, Attribute]) -> Iterator[None]:
    token = _FORCED.set(ids_of(place) if name == ROOT and tracing.is_own else None)
    with contextlib.ExitStack() as stack:
        try:
            context = _context(tracing, name, place)
            started = tracing.tracer.start_as_current_span(name, context, attributes=_written(place, attributes))
            stack.enter_context(started)
        finally:
            _FORCED.reset(token)
        yield


def _context(tracing: _Tracing, name: str, place: StepPlace) -> Context:
    """What a span of a step is below: a span of it that is open in this thread, else the step's first one."""
    from opentelemetry import context, trace
    from opentelemetry.sdk.trace.sampling import Decision

    trace_id, root_id = ids_of(place)
    if trace.get_current_span().get_span_context().trace_id == trace_id:
        return context.get_current()
    if name == ROOT and tracing.is_own:
        return context.Context()
    decision = tracing.provider.sampler.should_sample(None, trace_id, ROOT).decision  # as it is made for the first span
    is_sampled = decision is Decision.RECORD_AND_SAMPLE
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if is_sampled else trace.TraceFlags.DEFAULT)
    first = trace.SpanContext(trace_id, root_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(first), context.Context())


def _written(place: StepPlace, attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {f"loadmaster.{name}": value for name, value in {**place._asdict(), **attributes}.items()}


def _exporter_kind(environ: Mapping[str, str]) -> str:
    """`otlp`, `console`, or nothing."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    named = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if named in ("otlp", "console"):
        return named
    return "otlp" if not named and any(environ.get(name) for name in _ENDPOINTS) else ""


def _tracing_of(role: str, kind: str, environ: Mapping[str, str]) -> _Tracing:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class StepIds(RandomIdGenerator):
        """Random ids, but for the first span of a step."""

        def generate_trace_id(self) -> int:
            forced = _FORCED.get()
            return super().generate_trace_id() if forced is None else forced[0]

        def generate_span_id(self) -> int:
            forced = _FORCED.get()
            return super().generate_span_id() if forced is None else forced[1]

    theirs: Any = trace.get_tracer_provider()
    if isinstance(theirs, TracerProvider):
        return _Tracing(tracer=theirs.get_tracer("loadmaster"), provider=theirs, is_own=False)
    named = {} if environ.get("OTEL_SERVICE_NAME") else {"service.name": f"loadmaster-{role}"}
    provider = TracerProvider(resource=Resource.create(named), id_generator=StepIds(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(kind)))
    return _Tracing(tracer=provider.get_tracer("loadmaster"), provider=provider, is_own=True)


def _exporter(kind: str) -> SpanExporter:
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
