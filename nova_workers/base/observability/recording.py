"""Records spans with OpenTelemetry's SDK. Only `nova_workers.base.observability.tracing` imports it, by name."""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter

from nova_workers.base.observability.ports import TelemetryConfig


def recording_provider(settings: TelemetryConfig, process: str, exporter: SpanExporter | None) -> TracerProvider:
    """Return a provider that sends spans to the collector of the settings, or to an exporter as they end."""
    resource = Resource.create({"service.name": settings.service_name, "nova.process": process})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        endpoint = f"{(settings.otlp_endpoint or '').rstrip('/')}/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider
