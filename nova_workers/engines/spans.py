"""Spans of tool calls, in the words of OpenTelemetry's conventions for generative AI.

Model calls need none of ours: the SDK makes them (``gen_ai.operation.name = chat``). Nor do calls to an MCP server of
this process, of which the MCP library makes a span where it carries them out. What the tool was given and what it
returned is not recorded.
"""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from nova_workers.contracts.engine import ToolCall

__all__ = ["tool_span"]


@contextmanager
def tool_span(call: ToolCall) -> Generator[None]:
    """Make a span of a tool call that is current within the block, with the process's provider."""
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
