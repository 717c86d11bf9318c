"""Describes a request to a model for the turn's listener."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.steps import ModelRequest
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.turn import Ask

_PARAMETERS: Final = (
    "model",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "temperature",
    "thinking",
    "reasoning",
    "reasoning_effort",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "text",
    "output_config",
)
"""The fields of requests that are shown. Others may be an operator's own, such as headers of a gateway."""


def model_request(ask: Ask, body: Mapping[str, Any], *, system: str, tools: Sequence[JsonObject]) -> ModelRequest:
    """Return the description of a request.

    Args:
        ask: What the turn asks.
        body: The request on the wire.
        system: All of its system prompt.
        tools: Its tools; the same object where they are the same.
    """
    parameters = {name: body[name] for name in _PARAMETERS if name in body}
    temperature = body.get("extra_body", {}).get("temperature")
    if temperature is not None:
        parameters["temperature"] = temperature
    return ModelRequest(ask.step, system, tools, parameters)


def described(tools: Iterable[ToolDefinition]) -> tuple[JsonObject, ...]:
    """Return tools as the model gets them."""
    return tuple(
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools
    )
