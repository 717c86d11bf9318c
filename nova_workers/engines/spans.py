"""Spans of tool calls, after OpenTelemetry's conventions for generative AI.

The SDK makes the spans of model calls (``gen_ai.operation.name = chat``), and the MCP library those of calls to
in-process servers. Arguments and results are not recorded.
"""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from nova_workers.contracts.engine import ToolCall

__all__ = ["tool_span"]


@contextmanager
def tool_span(call: ToolCall) -> Generator[None]:
    """Create a span for a tool call, current within the block, with the process's tracer provider."""
    with trace.get_tracer("nova_workers.engines").start_as_current_span(
        f"execute_tool {call.tool_name}",
        kind=SpanKind.INTERNAL,
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool_name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR))
            raise
