"""The parts of a turn's result, collected while it runs."""

from dataclasses import dataclass, field
from typing import Any

from nova_workers.contracts.abort import AbortReason
from nova_workers.contracts.content import Message
from nova_workers.contracts.engine import (
    DeferredCall,
    EngineError,
    EngineEvent,
    EngineResult,
    EngineUsage,
    Limit,
    StopReason,
    ToolCall,
)
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.seam import Ending

__all__ = ["STOP_REASONS", "Tally", "stopped_because"]

STOP_REASONS: dict[Ending, StopReason] = {
    "end": "end_turn",
    "max_tokens": "max_tokens",
    "tools": "tool_use",
    "resume": "tool_use",
}


@dataclass(slots=True)
class Tally:
    """The parts of a result. A resumed turn does not count what is in its journal."""

    text: str = ""
    messages: list[Message] = field(default_factory=list[Message])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    usage: TokenUsage = field(default_factory=TokenUsage)
    model_calls: int = 0
    reasoning_ms: int = 0
    model: str | None = None
    limit: Limit | None = None
    deferred: tuple[DeferredCall, ...] = ()
    deferred_usage: TokenUsage = field(default_factory=TokenUsage)

    def event(self, duration_ms: int) -> EngineEvent:
        """Return the event that ends the turn."""
        return EngineEvent(
            "result",
            {
                "cost_usd": self.usage.cost_usd,
                "duration_ms": duration_ms,
                "turns": self.model_calls,
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "cache_read_tokens": self.usage.cache_read_tokens,
                "limit": self.limit,
            },
        )

    def result(
        self, reason: StopReason, error: EngineError | None, *, provider: str, duration_ms: int, output: Any
    ) -> EngineResult:
        """Return the result."""
        return EngineResult(
            text=self.text,
            stop_reason=reason,
            usage=EngineUsage(self.usage, duration_ms, self.model_calls, self.reasoning_ms),
            messages=tuple(self.messages),
            tool_calls=tuple(self.calls),
            model=self.model,
            provider=provider,
            error=error,
            limit=self.limit,
            output=output,
            deferred=self.deferred,
            deferred_usage=self.deferred_usage,
        )


def stopped_because(reason: AbortReason, overdue: str) -> tuple[StopReason, EngineError | None]:
    """Return the stop reason and the error of a turn that was stopped."""
    if reason != "timeout":
        return "aborted", None
    return "timeout", EngineError("timeout", overdue, retryable=True)
