"""OpenTelemetry traces: one trace a run, from the request through the queue to the engine's steps.

The thread of a trace is its W3C ``traceparent``. The API's request span is the root; its ``traceparent`` is
stored with the run, and everything that happens to the run later, on whichever worker and in whichever
attempt, hangs under it::

    POST /v1/threads/{thread_id}/runs        the request
    ├── nova.queue_wait                      from acceptance to the first claim
    ├── invoke_agent Helper                  one attempt: a worker owns the run (gen_ai.*)
    │   ├── nova.step                        a model response and its tools, until committed
    │   ├── chat claude-haiku-4-5            a model call (gen_ai.*)
    │   └── execute_tool Read                a tool call (gen_ai.*); below one of a subagent, its model calls
    │       └── MCP send tools/call read     MCP's own span of what goes over the wire
    └── effect.embeddings                    post-run work

Spans of ``gen_ai.*`` follow OpenTelemetry's conventions for generative AI. Libraries with spans of their own (MCP) find
the process's global provider, which `Tracing.install` sets. What people, models and tools wrote is not recorded, unless
the operator turns it on (``NOVA_TELEMETRY__TRACE_CONTENT``).

Without a collector nothing is recorded, and a caller's ``traceparent`` is still passed on unchanged.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nova_workers.base.errors import EngineFailure
from nova_workers.base.observability.addresses import bare_addresses
from nova_workers.base.observability.ports import TelemetryConfig, TokenCounts
from nova_workers.base.observability.redaction import redact

_UNRECORDED_TRACE_ID = 1
_RECORDING = "nova_workers.base.observability.recording"

AttributeValue = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, AttributeValue | None]
"""Attributes of a span; those that are None are left out."""

_PROPAGATOR = TraceContextTextMapPropagator()

CONVERSATION = contexts.create_key("nova-conversation")
"""Key of an OpenTelemetry context: the id of the conversation that its spans belong to."""
_CONTENT = contexts.create_key("nova-content")


def current_traceparent() -> str | None:
    """Return the W3C ``traceparent`` of the active span, or None outside any."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent")


def current_trace_id() -> str | None:
    """Return the trace of the active span as logs name it, or None outside any."""
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else None


class Tracing:
    """Makes spans. One object a process, built by bootstrap and handed on."""

    def __init__(self, settings: TelemetryConfig, process: str, *, exporter: object | None = None) -> None:
        """Set up the export of spans.

        Args:
            settings: The collector; without one nothing is recorded.
            process: What this process is (``api``, ``worker``, ``beat``).
            exporter: The SDK's `SpanExporter` that takes spans as they end, in place of the collector; for tests.
        """
        self._sdk: Any = None
        self._trace_content = settings.trace_content
        if exporter is not None or settings.otlp_endpoint is not None:
            # The SDK is 4 MB, which a process without a collector does not load.
            self._sdk = import_module(_RECORDING).recording_provider(settings, process, exporter)
        provider: trace.TracerProvider = self._sdk or trace.NoOpTracerProvider()
        self._tracer = provider.get_tracer("nova_workers")

    @property
    def enabled(self) -> bool:
        """Whether spans are recorded."""
        return self._sdk is not None

    def install(self) -> None:
        """Make this the process's global provider, for libraries that know no other way (mcp). Once a process."""
        if self._sdk is not None:
            trace.set_tracer_provider(self._sdk)

    def close(self) -> None:
        """Send what is left and stop."""
        if self._sdk is not None:
            self._sdk.shutdown()

    @contextmanager
    def conversation(self, id_: str) -> Generator[None]:
        """Give all spans of the block, also those of libraries, the id of their conversation.

        Those of model calls and tool calls have content as well, if the operator asks for it.
        """
        if self._sdk is None:
            yield
            return
        token = contexts.attach(
            contexts.set_value(_CONTENT, self._trace_content, contexts.set_value(CONVERSATION, id_))
        )
        try:
            yield
        finally:
            contexts.detach(token)

    @contextmanager
    def span(
        self,
        name: str,
        *,
        parent: str | None = None,
        attributes: Attributes | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Generator[Span]:
        """Make a span that is current within the block.

        An exception ends it as an error with the exception's type and redacted message, and propagates.

        Args:
            name: Low in cardinality: what is done, never to which object.
            parent: The ``traceparent`` to hang it under; the active span when left out or malformed.
            attributes: Facts to filter by; those that are None are left out.
            kind: ``SERVER`` for a request that came in.
        """
        if self._sdk is None and parent is None:
            # Nothing is recorded, and the current span remains the one that is passed on.
            yield trace.get_current_span()
            return
        span = self._tracer.start_span(name, context=_parent(parent), kind=kind, attributes=present(attributes))
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", error_type(error))
                span.set_status(Status(StatusCode.ERROR, bare_addresses(redact(str(error)))))
                raise

    def record(
        self, name: str, *, start: datetime, end: datetime, parent: str | None, attributes: Attributes | None = None
    ) -> None:
        """Record a span of the past, such as a wait in the queue that is known only when it is over.

        A `start` after `end` (two machines' clocks) is taken as `end`.
        """
        if self._sdk is None:
            return
        span = self._tracer.start_span(
            name,
            context=_parent(parent),
            attributes=present(attributes),
            start_time=_nanoseconds(min(start, end)),
        )
        span.end(_nanoseconds(end))


@contextmanager
def unrecorded() -> Generator[None]:
    """Record no spans in the block, of us or of libraries, and log warnings only.

    Spans hang under one that is not sampled.
    """
    context = trace.SpanContext(
        trace_id=_UNRECORDED_TRACE_ID, span_id=1, is_remote=False, trace_flags=trace.TraceFlags(0)
    )
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield


def is_unrecorded() -> bool:
    """Return whether this is the block of `unrecorded`."""
    return trace.get_current_span().get_span_context().trace_id == _UNRECORDED_TRACE_ID


def annotate(attributes: Attributes, *, error: str | None = None) -> None:
    """Add facts to the current span, such as what is known only at the end.

    Args:
        attributes: Those that are None are left out.
        error: What kind of failure the span ends with; None if it does not.
    """
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes(present({**attributes, "error.type": error}))
        if error is not None:
            span.set_status(Status(StatusCode.ERROR))


@contextmanager
def without_content() -> Generator[None]:
    """Let spans of the block have no content, whatever the operator asks for."""
    token = contexts.attach(contexts.set_value(_CONTENT, False))
    try:
        yield
    finally:
        contexts.detach(token)


def records_content() -> bool:
    """Return whether spans of the current conversation have content."""
    return contexts.get_value(_CONTENT) is True


def error_type(error: BaseException) -> str:
    """Return the ``error.type`` of a failure: an engine's kind, or the exception's class."""
    return error.kind if isinstance(error, EngineFailure) else type(error).__qualname__


def usage_attributes(usage: TokenCounts) -> Attributes:
    """Return the attributes for the tokens of model calls. Those of the input count all that was read."""
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens or None,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
    }


def present(attributes: Attributes | None) -> dict[str, AttributeValue]:
    """Return the attributes that have a value."""
    return {key: value for key, value in (attributes or {}).items() if value is not None}


def _parent(traceparent: str | None) -> Context | None:
    if traceparent is None:
        return None
    context = _PROPAGATOR.extract({"traceparent": traceparent}, contexts.get_current())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
