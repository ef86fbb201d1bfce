"""An OpenTelemetry collector: takes spans over HTTP as protobuf, and keeps them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span as it was sent. Ids are hex, `parent_id` is empty where it is a first one; times are ns since 1970."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]


class Collector:
    """Listens at `url` until it is closed. Any thread may call it.

    Attributes:
        spans: All that came.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to send spans."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def trace(self, step: int) -> list[Span]:
        """The spans of a step, in the order in which they began."""
        found = [span for span in list(self.spans) if span.attributes.get("loadmaster.step") == step]
        return sorted(found, key=lambda span: span.start_ns)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _spans(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(
            service=next(a.value.string_value for a in part.resource.attributes if a.key == "service.name"),
            name=span.name,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            attributes={a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
        )
        for part in request.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]
