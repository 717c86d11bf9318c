"""Spans of model calls and tool calls, after OpenTelemetry's conventions for generative AI (release 0.1.0).

Every model call and every tool call of a turn has one, whichever engine runs it: `CallRunner` makes those of tools, and
what asks a model makes that of the call. SDKs and the MCP library make none of their own for these.

What people, models and tools wrote is recorded only in a conversation whose spans have content
(`nova_workers.base.observability.tracing.Tracing.conversation`), without the secrets of the run.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.span import Span

from nova_workers.base.observability.redaction import redact_value
from nova_workers.base.observability.tracing import (
    Attributes,
    error_type,
    present,
    records_content,
    usage_attributes,
)
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.steps import ModelRequest, ToolCall
from nova_workers.engines.turn.seam import Ask, Draft, Ending, Response, ToolOutcome

_FINISH_REASONS: Final[Mapping[Ending, str]] = {
    "end": "stop",
    "tools": "tool_call",
    "resume": "stop",
    "max_tokens": "length",
}
"""The conventions' words, for responses of providers that give no reason of their own."""

_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "codex": "openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""Names of providers for which the conventions have another word."""

# Where requests have these, in the words of the providers.
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_LEVELS: Final = (("reasoning_effort",), ("reasoning", "effort"), ("output_config", "effort"))
_FORMATS: Final = (("response_format", "type"), ("text", "format", "type"), ("output_config", "format", "type"))

_MAX_TEXT_CHARS: Final = 8_000
_MAX_CONTENT_CHARS: Final = 50_000
"""Limits of one text, and of one attribute with content: collectors refuse requests of some megabytes."""


class ToolSpan:
    """The span of a tool call."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._is_failed = False

    def fail(self, kind: str) -> None:
        """Record that the call failed, and how. The first failure counts."""
        if not self._is_failed:
            self._is_failed = True
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR))

    def end(self, outcome: ToolOutcome) -> None:
        """Record the outcome."""
        if not self._span.is_recording():
            return
        if outcome.deferral is not None:
            self._span.set_attribute("nova.tool.deferred", True)
        if outcome.failure is not None:
            self.fail(error_type(outcome.failure))
        elif outcome.failed:
            self.fail("tool_error")
        if outcome.content and records_content():
            self._span.set_attribute("gen_ai.tool.call.result", _json([_part(block) for block in outcome.content]))


@contextmanager
def tool_span(call: ToolCall) -> Generator[ToolSpan]:
    """Make a span for a tool call, current within the block, with the process's tracer provider."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool_name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
    }
    with _tracer().start_as_current_span(
        f"execute_tool {call.tool_name}",
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        if span.is_recording() and records_content():
            span.set_attribute("gen_ai.tool.call.arguments", _json(call.params))
        tool = ToolSpan(span)
        try:
            yield tool
        except Exception as error:
            tool.fail(error_type(error))
            raise


@dataclass(slots=True)
class ModelCall:
    """A model call as its span describes it.

    Attributes:
        attempts: How often the provider was asked.
        response: The complete response, once there is one.
    """

    attempts: int = 0
    response: Response | None = None


@contextmanager
def model_span(vendor: str, model: str, ask: Ask, draft: Draft) -> Generator[ModelCall]:
    """Make a span for a call of one model, with all retries.

    It is not current within the block: calls of read-only tools that begin while the response streams belong to the
    turn, as all others.

    Args:
        vendor: The provider, as people know it.
        model: The model, perhaps after the provider's name.
        ask: What the model is asked.
        draft: The request as it is sent, and what there is of the answer.
    """
    name, call = model.removeprefix(f"{vendor}/"), ModelCall()
    span = _tracer().start_span(
        f"chat {name}",
        kind=SpanKind.CLIENT,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(vendor, vendor),
            "gen_ai.request.model": name,
            "gen_ai.request.stream": True,
        },
    )
    try:
        yield call
    except Exception as error:
        span.set_attribute("error.type", error_type(error))
        span.set_status(Status(StatusCode.ERROR))
        raise
    finally:
        if span.is_recording():
            span.set_attributes(present(_described(call, ask, draft)))
        span.end()


def _tracer() -> trace.Tracer:
    return trace.get_tracer("nova_workers.engines")


def _described(call: ModelCall, ask: Ask, draft: Draft) -> Attributes:
    response = call.response
    reason = None if response is None else response.finish_reason or _FINISH_REASONS[response.ending]
    began_ms = draft.first_token_ms
    return {
        **_of_request(draft.asked),
        "gen_ai.response.id": None if response is None else response.id,
        "gen_ai.response.model": draft.model if response is None else response.model,
        # An answer that was expected and did not come.
        "gen_ai.response.finish_reasons": [reason or "error"],
        "gen_ai.response.time_to_first_chunk": None if began_ms is None else began_ms / 1_000,
        **usage_attributes(draft.usage if response is None else response.usage),
        "nova.model.attempts": call.attempts,
        **(_content(ask, draft, response) if records_content() else {}),
    }


def _of_request(asked: ModelRequest | None) -> Attributes:
    if asked is None:
        return {}
    sent = asked.parameters
    return {
        "gen_ai.request.max_tokens": next((sent[name] for name in _LIMITS if isinstance(sent.get(name), int)), None),
        "gen_ai.request.temperature": sent.get("temperature"),
        "gen_ai.request.reasoning.level": _level(sent),
        "gen_ai.output.type": "json" if any(_within(sent, *path) == "json_schema" for path in _FORMATS) else None,
    }


def _level(sent: JsonObject) -> str | None:
    found = (_within(sent, *path) for path in _LEVELS)
    return next((level for level in found if isinstance(level, str)), None)


def _within(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _content(ask: Ask, draft: Draft, response: Response | None) -> Attributes:
    asked = draft.asked
    said = response.content if response is not None else (text_block(draft.text),) if draft.text else ()
    tools = () if asked is None else asked.tools
    return {
        "gen_ai.system_instructions": _json([_text(asked.system)]) if asked is not None and asked.system else None,
        "gen_ai.input.messages": _json([_message(each.role, each.content) for each in ask.messages]),
        "gen_ai.output.messages": _json([_message("assistant", said)]) if said else None,
        "gen_ai.tool.definitions": _json([{"type": "function", "name": tool.get("name")} for tool in tools])
        if tools
        else None,
    }


def _message(role: str, content: Sequence[ContentBlock]) -> JsonObject:
    results = bool(content) and all(block.get("type") == "tool_result" for block in content)
    return {"role": "tool" if results else role, "parts": [_part(block) for block in content]}


def _part(block: ContentBlock) -> JsonObject:
    match block.get("type"):
        case "text":
            return _text(block.get("text"))
        case "thinking":
            return {"type": "reasoning", "content": block.get("thinking") or ""}
        case "tool_use":
            return {
                "type": "tool_call",
                "id": block.get("id"),
                "name": block.get("name"),
                "arguments": block.get("input"),
            }
        case "tool_result":
            parts = block.get("content")
            return {
                "type": "tool_call_response",
                "id": block.get("tool_use_id"),
                "response": [_part(part) for part in parts] if isinstance(parts, list | tuple) else parts,
            }
        case kind:
            # Images, documents and parts of the provider's own: only that they were there.
            return {"type": str(kind)}


def _text(text: object) -> JsonObject:
    return {"type": "text", "content": text or ""}


def _json(value: Any) -> str:
    """Return content as JSON, without secrets and within its limits; of a list that is too long, its newest items."""
    shown = _within_limits(redact_value(value))
    text = orjson.dumps(shown, default=str).decode()
    while len(text) > _MAX_CONTENT_CHARS and isinstance(shown, list) and len(shown) > 1:
        shown = shown[(len(shown) + 1) // 2 :]
        text = orjson.dumps(shown, default=str).decode()
    return text if len(text) <= _MAX_CONTENT_CHARS else orjson.dumps(text[:_MAX_CONTENT_CHARS]).decode()


def _within_limits(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT_CHARS else f"{value[:_MAX_TEXT_CHARS]} […]"
    if isinstance(value, dict):
        return {key: _within_limits(item) for key, item in value.items()}
    return [_within_limits(item) for item in value] if isinstance(value, list) else value
