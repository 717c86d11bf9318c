"""Spans of tool calls and model calls, after OpenTelemetry's conventions for generative AI.

The `anthropic` SDK makes the spans of its model calls itself, and the MCP library those of calls to in-process servers.
Arguments, results and messages are not recorded.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.usage import TokenUsage


@contextmanager
def tool_span(call: ToolCall) -> Generator[None]:
    """Create a span for a tool call, current within the block, with the process's tracer provider."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool_name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
    }
    with _span(f"execute_tool {call.tool_name}", SpanKind.INTERNAL, attributes):
        yield


@contextmanager
def model_span(provider: str, model: str) -> Generator[Callable[[TokenUsage, str | None], None]]:
    """Create a span for a model call, likewise. The block calls the given function with usage and answering model."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }
    with _span(f"chat {model}", SpanKind.CLIENT, attributes) as span:

        def answered(usage: TokenUsage, by: str | None) -> None:
            read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
            span.set_attribute("gen_ai.response.model", by or model)
            span.set_attribute("gen_ai.usage.input_tokens", read)
            span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
            span.set_status(Status(StatusCode.OK))

        yield answered


@contextmanager
def _span(name: str, kind: SpanKind, attributes: Mapping[str, str]) -> Generator[Span]:
    with trace.get_tracer("nova_workers.engines").start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR))
            raise
