"""Records spans with OpenTelemetry's SDK. Only `nova_workers.base.observability.tracing` imports it, by name."""

import os
import socket

from opentelemetry.context import Context, get_value
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter

from nova_workers.base.observability.ports import TelemetryConfig
from nova_workers.base.observability.tracing import CONVERSATION


class _OfConversation(SpanProcessor):
    """Gives each span that begins in a conversation its id."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Add the id, if there is one."""
        conversation = get_value(CONVERSATION, parent_context)
        if isinstance(conversation, str):
            span.set_attribute("gen_ai.conversation.id", conversation)


def recording_provider(settings: TelemetryConfig, process: str, exporter: SpanExporter | None) -> TracerProvider:
    """Return a provider that sends spans to the collector of the settings, or to an exporter as they end."""
    instance = f"{socket.gethostname()}-{os.getpid()}"
    resource = Resource.create(
        {"service.name": settings.service_name, "service.instance.id": instance, "nova.process": process}
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(_OfConversation())
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        endpoint = f"{(settings.otlp_endpoint or '').rstrip('/')}/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider
