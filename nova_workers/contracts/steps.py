"""What happens in a turn, as values: tool calls, steps, events, and the verdicts of the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.usage import TokenUsage
from nova_workers.vocabulary import ToolCallStatus

__all__ = [
    "EngineEvent",
    "StepRecord",
    "StepVerdict",
    "ToolAuthorization",
    "ToolCall",
    "ToolCallStatus",
]


StepVerdict = Literal["continue", "stop"]
"""What the caller says at a step boundary."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool invocation as the ledger records it.

    Attributes:
        id: The model's id of the call; a result refers to it.
        result: The content blocks of the result, None until it ended.
        step: The step of the turn, from 0.
        sequence: Order within the turn.
        idempotent: Whether the tool's own declaration allows to run it again after a crash.
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
    """One model response and the results of the tools that it called: the unit of the journal.

    Attributes:
        index: From 0 within the turn.
        messages: The assistant message, then the user message with every tool's result if it called any.
            In a journal that is handed back, steering messages that joined at this boundary follow.
        tool_calls: The calls of this step.
        usage: What the response alone used: with it the conversation is that long.
        tool_usage: What was used beside it, and is no part of the conversation's length: by tools that call a model
            themselves (subagents), and by responses that broke off and came anew.
        final: Whether the turn ends with this step. The caller commits a final step with the turn's end.
        complete: False only in a journal that is handed back after a crash: the response is committed,
            some of its tools may not have ended.
    """

    index: int
    messages: tuple[Message, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    model: str | None = None
    final: bool = False
    complete: bool = True
    tool_usage: TokenUsage = field(default_factory=TokenUsage)


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
    """With a call that is not allowed yet: what it waits for. The turn then stops for it, where it can."""
