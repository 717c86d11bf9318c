"""The API's outermost layer: a span, two metrics and one log line for every request.

Plain ASGI: Starlette's ``BaseHTTPMiddleware`` would put a task and a queue around every event stream.
"""

from dataclasses import dataclass
from typing import Final

import structlog
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nova_workers.base.clock import Clock, SystemClock
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing

_PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines: counted, but neither traced nor logged."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Exchange:
    """What is known of one request so far."""

    started_s: float
    status: int = 500
    is_stream: bool = False
    head_after_s: float | None = None
    response_bytes: int = 0


class ObservabilityMiddleware:
    """Wraps the whole application.

    A caller's ``traceparent`` is taken up; without one the request begins a trace. Requests that no route
    matched are counted together, so that a scanner cannot make label values.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, tracing: Tracing, clock: Clock | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing
        self._clock: Clock = clock or SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(started_s=self._clock.monotonic_s())

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._see_head(exchange, message)
            elif message["type"] == "http.response.body":
                exchange.response_bytes += len(message.get("body", b""))
            await send(message)

        if scope["path"] in _PROBES:
            try:
                await self._app(scope, receive, watch)
            finally:
                self._count(scope, exchange)
            return
        with self._tracing.span(scope["method"], parent=_header(scope, b"traceparent"), kind=SpanKind.SERVER) as span:
            try:
                await self._app(scope, receive, watch)
            finally:
                self._count(scope, exchange)
                self._describe(span, scope, exchange)

    def _see_head(self, exchange: _Exchange, message: Message) -> None:
        exchange.status = int(message["status"])
        exchange.head_after_s = self._clock.monotonic_s() - exchange.started_s
        exchange.is_stream = any(
            name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"]
        )

    def _count(self, scope: Scope, exchange: _Exchange) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        route = _route(scope)
        elapsed_s = self._clock.monotonic_s() - exchange.started_s
        if exchange.is_stream and exchange.head_after_s is not None:
            elapsed_s = exchange.head_after_s
        self._metrics.http_requests.labels(method, route, str(exchange.status)).inc()
        self._metrics.http_duration_s.labels(method, route).observe(elapsed_s)

    def _describe(self, span: Span, scope: Scope, exchange: _Exchange) -> None:
        route = _route(scope)
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.request.method", scope["method"])
        span.set_attribute("http.route", route)
        span.set_attribute("url.path", scope["path"])
        span.set_attribute("http.response.status_code", exchange.status)
        if exchange.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        _log.info(
            "http.request",
            method=scope["method"],
            route=route,
            path=scope["path"],
            status=exchange.status,
            duration_ms=round((self._clock.monotonic_s() - exchange.started_s) * 1000, 2),
            response_bytes=exchange.response_bytes,
            client=scope["client"][0] if scope.get("client") else None,
        )


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unmatched"


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return value.decode("latin-1")
    return None
