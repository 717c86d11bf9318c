"""Values of a turn: tool calls, steps, events, and the caller's verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from nova_workers.base.vocabulary import ToolCallStatus
from nova_workers.contracts.content import ContentBlock, JsonObject, Message
from nova_workers.contracts.usage import TokenUsage

__all__ = [
    "INTERRUPTED",
    "NOT_ANSWERED",
    "NOT_BEGUN",
    "NOT_PERMITTED_YET",
    "NO_RESULT",
    "EngineEvent",
    "ModelRequest",
    "StepRecord",
    "StepVerdict",
    "ToolAuthorization",
    "ToolCall",
    "ToolCallStatus",
    "ToolServerAway",
    "not_permitted",
]

# What the model gets as the result of a call that has none of its own: what is known of it, and no more.
INTERRUPTED = (
    "This call was interrupted before it ended. Whether it had an effect is not known; check before repeating it."
)
NOT_BEGUN = "The turn was stopped before this call began. It had no effect."
NOT_PERMITTED_YET = "The turn was stopped before this call was permitted. It did not begin, and had no effect."
NOT_ANSWERED = "The turn was stopped before this call had its answer."
NO_RESULT = "The result of this call was not recorded. Whether it had an effect is not known."


StepVerdict = Literal["continue", "stop"]
"""The caller's decision at a step boundary."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool invocation as the ledger records it.

    Attributes:
        id: The model's id of the call; a result refers to it.
        result: The content blocks of the result; None until the call ended.
        step: The step of the turn, from 0.
        sequence: Order within the turn.
        idempotent: Whether the tool declares that it may run again after a crash.
    """

    id: str
    tool_name: str
    params: JsonObject
    step: int
    sequence: int
    status: ToolCallStatus = "pending"
    result: tuple[JsonObject, ...] | None = None
    error: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One model response with the results of its tool calls: the unit of the journal.

    Attributes:
        index: From 0 within the turn.
        messages: The assistant message, then, if it called tools, the user message with all results. In a journal that
            is read back, the steering messages that joined at this boundary follow.
        tool_calls: The calls of this step.
        usage: Usage of the response alone; it measures the length of the conversation.
        tool_usage: Further usage that is not part of the conversation's length: by tools that call a model (subagents),
            and by responses that broke off and were requested again.
        final: Whether the turn ends with this step. The caller commits a final step together with the turn's end.
        complete: False only in a journal that is read back after a crash: the response is committed, but some of its
            calls may not have ended.
        joins: Whether messages may join the turn after it. Those that may not stay queued.
        first_token_ms: Time from the request of the response until it began; None if the engine does not measure it.
    """

    index: int
    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    model: str | None = None
    final: bool = False
    complete: bool = True
    tool_usage: TokenUsage = field(default_factory=TokenUsage)
    joins: bool = True
    first_token_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model call sends besides the conversation, as the engine knows it.

    Attributes:
        step: The step of the turn that its response begins.
        system: The whole system prompt, with what the engine adds to it.
        tools: The tools that the model is offered, each with its name, description and input schema in the words of
            the provider. Requests with the same tools pass the same object.
        parameters: Settings of the call, such as ``model`` and ``max_tokens``, in the words of the provider.
    """

    step: int
    system: str
    tools: Sequence[JsonObject]
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """A structured event: ``assistant_text`` (text), ``tool_use`` (name, input), ``result`` (cost and counts)."""

    type: Literal["assistant_text", "tool_use", "result"]
    data: JsonObject


@dataclass(frozen=True, slots=True)
class ToolAuthorization:
    """The verdict on one tool call. A refusal's reason goes to the model as the tool's error."""

    allowed: bool
    reason: str | None = None
    deferral: JsonObject | None = None
    """The wait of a call that is not allowed yet. The turn then stops for it, if it can."""
    result: tuple[ContentBlock, ...] | None = None
    """The result that the model gets in place of a call, which does not begin. An engine without this refuses."""
    is_error: bool = False
    """Whether that result is an error."""
    if_read_only: bool = False
    """Whether the call is allowed if its tool is known to change nothing. An engine that does not know refuses."""


def not_permitted(reason: str | None) -> str:
    """Return the result of a call that the caller does not allow."""
    return f"{(reason or 'Not permitted').rstrip('. ')}. This call was not permitted, and did not begin."


@dataclass(frozen=True, slots=True)
class ToolServerAway:
    """A server that does not answer.

    Attributes:
        name: With which the names of its tools begin, such as ``mcp__github``.
        reason: Why it counts as away.
        output: The last lines that its process wrote to stderr, redacted. Empty for a server behind a URL.
    """

    name: str
    reason: str
    output: tuple[str, ...] = ()
