"""An OTLP/HTTP collector on loopback that keeps the spans that it is sent."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

Value = Any
"""A value of an attribute: a string, a number, a boolean, or a list of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it was sent; `process` and `instance` are of its resource. A root has an empty `parent_id`."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Value]
    process: Value
    instance: Value


class TraceCollector:
    """See above.

    Attributes:
        url: For ``NOVA_TELEMETRY__OTLP_ENDPOINT``.
        spans: In the order in which they came.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []

    def of(self, trace_id: str, name: str | None = None) -> list[Span]:
        """Return the spans of a trace, all or those of a name."""
        return [span for span in self.spans if span.trace_id == trace_id and name in (None, span.name)]

    def take(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of a request."""
        for resource in request.resource_spans:
            named = _values(resource.resource.attributes)
            self.spans += [
                Span(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    _values(span.attributes),
                    named.get("nova.process"),
                    named.get("service.instance.id"),
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]


@contextmanager
def trace_collector() -> Generator[TraceCollector]:
    """Serve a collector within the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.take(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = TraceCollector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _values(attributes: Sequence[KeyValue]) -> dict[str, Value]:
    return {item.key: _value(item.value) for item in attributes}


def _value(value: AnyValue) -> Value:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)
