"""The seam between the responder and the two wire forms: how a request is built, and how its stream is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.effort import reasoning_effort
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.openai.catalog import Target
from nova_workers.engines.openai.names import ToolNames
from nova_workers.engines.tool_schemas import NOT_AT_ROOT
from nova_workers.engines.turn import Draft, Ending
from nova_workers.engines.turn.answer import answer_request

_ANSWER_TOKENS = 1_024
"""Tokens reserved for the answer besides the reasoning, since the limit covers both."""
_LEAST_REASONING_TOKENS = 2_048
"""A model that always reasons would not come to its answer within a limit that is meant for a short one."""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What all requests of a turn to one model share.

    Attributes:
        missing: A note to the model about missing tools.
        history: How many of the messages are older than the turn.
    """

    target: Target
    options: EngineOptions
    tools: tuple[ToolDefinition, ...]
    names: ToolNames
    missing: str | None
    default_max_tokens: int
    history: int

    @property
    def instructions(self) -> str:
        """The system prompt."""
        options = self.options
        parts = [options.system_prompt or ""]
        if options.output_schema is not None and self.enforced_schema is None:
            parts.append(answer_request(options.output_schema))
        if self.missing:
            parts.append(self.missing)
        return "\n\n".join(part for part in parts if part.strip())

    @property
    def enforced_schema(self) -> Mapping[str, Any] | None:
        """The schema of the answer for the provider to enforce; None if there is none, or none that it takes."""
        schema = self.options.output_schema
        if schema is None or self.target.provider.structured_output != "json_schema":
            return None
        is_object = schema.get("type") == "object" and not any(keyword in schema for keyword in NOT_AT_ROOT)
        return schema if is_object else None

    @property
    def effort(self) -> str | None:
        """The reasoning effort to ask for; None leaves it to the model."""
        return reasoning_effort(self.options)

    def max_tokens(self, cap: int | None) -> int:
        """Return the limit of a response's tokens, reasoning included, at most `cap`."""
        wanted = self.options.max_tokens or self.default_max_tokens
        if self.options.thinking_budget_tokens:
            wanted = max(wanted, self.options.thinking_budget_tokens + _ANSWER_TOKENS)
        if self.target.reasons:
            wanted = max(wanted, _LEAST_REASONING_TOKENS)
        return wanted if cap is None else min(wanted, cap)

    @property
    def temperature(self) -> float | None:
        """The temperature, if the model takes one."""
        return None if self.target.reasons else self.options.temperature


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete response, with the provider's id of it and its word for the end."""

    content: tuple[ContentBlock, ...]
    ending: Ending
    id: str = ""
    finish_reason: str | None = None


class Reader(Protocol):
    """Assembles one response from its stream.

    Attributes:
        model: The model that answers, as the provider names it.
        counted: The provider's counts, once it sent them; their cost is not set.
        begun: Whether the model has begun to answer.
        is_complete: Whether the provider has ended the response; what follows cannot spoil it.
    """

    model: str
    counted: TokenUsage | None
    begun: bool

    @property
    def is_complete(self) -> bool:
        """See above."""
        ...

    def take(self, event: object, draft: Draft) -> None:
        """Process an event, which is any JSON, and forward its text.

        Raises:
            EngineFailure: The event says that the response failed.
        """
        ...

    def answered(self, *, is_marked: bool) -> Answered:
        """Return the response, once the stream has ended.

        Args:
            is_marked: Whether the stream had its mark of the end: that of a connection which closes is no sign.

        Raises:
            EngineFailure: It is incomplete, or a refusal.
        """
        ...


def answer_schema(schema: Mapping[str, Any], *, strict: bool) -> JsonObject:
    """Return the description of a structured answer that both wire forms use."""
    return {"name": "answer", "schema": dict(schema), "strict": strict}
