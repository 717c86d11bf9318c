"""Builds requests to the Messages API."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.models import parse_model
from nova_workers.engines.toolbox import ToolDefinition

__all__ = ["fixed_part", "with_messages"]

_CACHED: JsonObject = {"type": "ephemeral"}
_ADAPTIVE_SINCE = (4, 6)
"""From this version on a model decides itself how much to think; a budget is deprecated, and refused from 4.7."""
_NO_TEMPERATURE_SINCE = (4, 7)
"""From this version on a request with a temperature is refused."""
_ANSWER_TOKENS = 1024
"""Room for the answer beside the thinking, where `max_tokens` covers both."""


def fixed_part(
    model: str, options: EngineOptions, tools: Iterable[ToolDefinition], default_max_tokens: int
) -> dict[str, Any]:
    """Return what is the same in every request of a turn, with cache marks at the ends of tools and system."""
    max_tokens = options.max_tokens or default_max_tokens
    request: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
    if options.system_prompt:
        request["system"] = [{"type": "text", "text": options.system_prompt, "cache_control": _CACHED}]
    definitions = [_tool(tool) for tool in tools]
    if definitions:
        definitions[-1]["cache_control"] = _CACHED
        request["tools"] = definitions
    if options.temperature is not None and _version(model) < _NO_TEMPERATURE_SINCE:
        # The SDK has dropped the parameter; the models that take it still do.
        request["extra_body"] = {"temperature": options.temperature}
    if options.thinking_budget_tokens:
        request["thinking"] = _thinking(model, options.thinking_budget_tokens)
        request["max_tokens"] = max(max_tokens, options.thinking_budget_tokens + _ANSWER_TOKENS)
    return request


def with_messages(fixed: Mapping[str, Any], messages: Sequence[Message]) -> dict[str, Any]:
    """Return the request. The mark at its top level makes the provider cache up to the last message."""
    return {
        **fixed,
        "messages": [{"role": message.role, "content": list(message.content)} for message in messages],
        "cache_control": _CACHED,
    }


def _tool(tool: ToolDefinition) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}


def _thinking(model: str, budget_tokens: int) -> JsonObject:
    if _version(model) >= _ADAPTIVE_SINCE:
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": budget_tokens}


def _version(model: str) -> tuple[int, int]:
    """Return the model's version; 0.0 for a name that says none, which is then sent what it is asked for."""
    name = parse_model(model)
    return (0, 0) if name is None else name.version
