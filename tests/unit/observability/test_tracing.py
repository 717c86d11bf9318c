"""One trace a run, from the request to the engine's steps."""

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from nova_workers.base.config import TelemetrySettings
from nova_workers.base.observability.tracing import Tracing, current_traceparent

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _tracing() -> tuple[Tracing, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return Tracing(TelemetrySettings(), "worker", exporter=exporter), exporter


def _parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def _ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def test_a_run_is_one_trace_over_processes_and_attempts() -> None:
    api, api_spans = _tracing()
    worker, worker_spans = _tracing()
    with api.span("POST /v1/runs"):
        stored = current_traceparent()
    worker.record("nova.queue_wait", start=NOW, end=NOW + timedelta(seconds=2), parent=stored)
    for attempt in (1, 2):
        with worker.span("nova.run", parent=stored, attributes={"nova.attempt": attempt, "nova.model": None}):
            worker.record("nova.step", start=NOW, end=NOW, parent=None, attributes={"gen_ai.response.model": "m"})
            with worker.span("tool"):
                pass
    (request,) = api_spans.get_finished_spans()
    spans = worker_spans.get_finished_spans()
    trace_id, request_id = _ids(request)
    assert {_ids(span)[0] for span in spans} == {trace_id}
    by_name = {span.name: span for span in spans}
    assert _parent_id(by_name["nova.queue_wait"]) == request_id
    assert _parent_id(by_name["nova.run"]) == request_id
    assert _parent_id(by_name["nova.step"]) == _ids(by_name["nova.run"])[1]
    assert _parent_id(by_name["tool"]) == _ids(by_name["nova.run"])[1]
    assert by_name["nova.run"].attributes == {"nova.attempt": 2}
    assert by_name["nova.step"].attributes == {"gen_ai.response.model": "m"}


def test_a_wait_of_the_past_has_its_own_times() -> None:
    tracing, spans = _tracing()
    tracing.record("nova.queue_wait", start=NOW, end=NOW + timedelta(seconds=2), parent=CALLER)
    tracing.record("nova.queue_wait", start=NOW + timedelta(seconds=9), end=NOW, parent=CALLER)
    waited, skewed = spans.get_finished_spans()
    assert waited.start_time is not None
    assert waited.end_time is not None
    assert waited.end_time - waited.start_time == 2_000_000_000
    assert skewed.start_time == skewed.end_time


def test_an_error_marks_its_span_without_secrets_and_propagates() -> None:
    tracing, spans = _tracing()
    with pytest.raises(ValueError, match="hunter2"), tracing.span("nova.run"):
        raise ValueError("redis://:hunter2@cache")
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "redis://cache"
    assert span.attributes == {"error.type": "ValueError"}
    assert span.events == ()


def test_without_a_collector_nothing_is_recorded_and_the_callers_trace_continues() -> None:
    tracing = Tracing(TelemetrySettings(), "api")
    assert not tracing.enabled
    with tracing.span("request", parent=CALLER), tracing.span("inner"):
        assert current_traceparent() == CALLER
    with tracing.span("request"):
        assert current_traceparent() is None
    tracing.record("nova.queue_wait", start=NOW, end=NOW, parent=CALLER)
    tracing.install()
    tracing.close()


@pytest.mark.parametrize("header", ["", "rubbish", "00-0-0-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_malformed_traceparent_begins_a_new_trace(header: str) -> None:
    tracing, spans = _tracing()
    with tracing.span("request", parent=header):
        pass
    (span,) = spans.get_finished_spans()
    assert span.parent is None


def test_spans_name_the_service_and_the_process() -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(TelemetrySettings(service_name="fleet"), "beat", exporter=exporter)
    with tracing.span("tick"):
        pass
    tracing.close()
    (span,) = exporter.get_finished_spans()
    assert span.resource.attributes["service.name"] == "fleet"
    assert span.resource.attributes["nova.process"] == "beat"
