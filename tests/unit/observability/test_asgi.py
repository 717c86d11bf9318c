"""Logs, metrics and spans of requests in the API's outermost layer."""

from collections.abc import AsyncIterator

import httpx2
import pytest
import structlog
from fastapi import APIRouter, FastAPI
from fastapi.responses import StreamingResponse
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from nova_workers.base.config import TelemetrySettings
from nova_workers.base.observability.asgi import ObservabilityMiddleware
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing, current_traceparent
from tests.support.harness.manual_clock import ManualClock

TRACE = "0af7651916cd43dd8448eb211c80319c"


class _Api:
    """A small API behind the middleware."""

    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self.spans = InMemorySpanExporter()
        self.clock = ManualClock()
        app, router = FastAPI(), APIRouter(prefix="/v1")

        @router.get("/threads/{thread_id}")
        async def thread(thread_id: str) -> dict[str, str | None]:
            return {"thread": thread_id, "traceparent": current_traceparent()}

        @router.get("/crash")
        async def crash() -> None:
            raise RuntimeError("no")

        @router.get("/events")
        async def events() -> StreamingResponse:
            async def body() -> AsyncIterator[bytes]:
                yield b": hi\n\n"
                self.clock.advance(60)
                yield b": there\n\n"

            return StreamingResponse(body(), media_type="text/event-stream")

        @app.get("/healthz")
        async def healthz() -> str:
            return "ok"

        app.include_router(router)
        tracing = Tracing(TelemetrySettings(), "api", exporter=self.spans)
        self.asgi = ObservabilityMiddleware(app, metrics=self.metrics, tracing=tracing, clock=self.clock)

    def requests(self, method: str, route: str, status: str) -> float | None:
        labels = {"method": method, "route": route, "status": status}
        return self.metrics.registry.get_sample_value("nova_http_requests_total", labels)


@pytest.fixture
def api() -> _Api:
    return _Api()


@pytest.fixture
async def client(api: _Api) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=api.asgi, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api", timeout=60) as client:
        yield client


async def test_a_request_continues_its_callers_trace(api: _Api, client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/threads/thr_1", headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
    (span,) = api.spans.get_finished_spans()
    assert answer.json()["traceparent"].split("-")[1] == TRACE
    assert span.name == "GET /v1/threads/{thread_id}"
    assert span.attributes == {
        "http.request.method": "GET",
        "http.route": "/v1/threads/{thread_id}",
        "url.path": "/v1/threads/thr_1",
        "http.response.status_code": 200,
    }
    assert api.requests("GET", "/v1/threads/{thread_id}", "200") == 1


async def test_paths_that_match_no_route_are_counted_together(api: _Api, client: httpx2.AsyncClient) -> None:
    for path in ("/wp-login.php", "/v1/nothing", "/.env"):
        await client.get(path)
    await client.request("BREW", "/tea")
    assert api.requests("GET", "unmatched", "404") == 3
    assert api.requests("OTHER", "unmatched", "404") == 1


async def test_a_crash_is_a_500_and_an_error_span(api: _Api, client: httpx2.AsyncClient) -> None:
    await client.get("/v1/crash")
    assert api.requests("GET", "/v1/crash", "500") == 1
    (span,) = api.spans.get_finished_spans()
    assert not span.status.is_ok


async def test_an_event_stream_is_timed_to_its_first_byte(api: _Api, client: httpx2.AsyncClient) -> None:
    await client.get("/v1/events")
    labels = {"method": "GET", "route": "/v1/events"}
    assert api.metrics.registry.get_sample_value("nova_http_request_duration_seconds_sum", labels) == 0


async def test_probes_are_counted_but_neither_traced_nor_logged(api: _Api, client: httpx2.AsyncClient) -> None:
    with structlog.testing.capture_logs() as logs:
        await client.get("/healthz")
    assert api.requests("GET", "/healthz", "200") == 1
    assert api.spans.get_finished_spans() == ()
    assert logs == []


async def test_the_access_log_has_the_route_and_no_query_string(client: httpx2.AsyncClient) -> None:
    with structlog.testing.capture_logs() as logs:
        await client.get("/v1/threads/thr_1?api_key=hunter2")
    (line,) = logs
    assert line["event"] == "http.request"
    assert line["route"] == "/v1/threads/{thread_id}"
    assert line["path"] == "/v1/threads/thr_1"
    assert line["status"] == 200
    assert line["response_bytes"] > 0
    assert "hunter2" not in str(line)
