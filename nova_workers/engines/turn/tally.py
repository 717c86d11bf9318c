"""What a turn has used and produced so far: its budgets, and the parts of its result."""

from dataclasses import dataclass, field
from typing import Any, assert_never

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.abort import AbortReason
from nova_workers.contracts.content import Message
from nova_workers.contracts.engine import (
    DeferredCall,
    EngineError,
    EngineEvent,
    EngineOptions,
    EngineResult,
    EngineUsage,
    Limit,
    StopReason,
    ToolCall,
)
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.seam import Ending


class Budget:
    """Counts a turn's tokens and cost against its limits, and against those of its parent turn."""

    def __init__(self, options: EngineOptions, parent: "Budget | None" = None) -> None:
        self._tokens = options.token_budget
        self._cost_usd = options.cost_budget_usd
        self._spent = options.spent
        self._parent = parent
        self._nested = TokenUsage()

    @property
    def spent(self) -> TokenUsage:
        """What counts against the limits so far."""
        return self._spent

    def spend(self, usage: TokenUsage) -> None:
        """Count the usage of a model call."""
        self._spent += usage
        if self._parent is not None:
            self._parent.spend_nested(usage)

    def spend_nested(self, usage: TokenUsage) -> None:
        """Count the usage of a nested turn."""
        self.spend(usage)
        self._nested += usage

    def take_nested_usage(self) -> TokenUsage:
        """Return the usage of nested turns since the last call."""
        below, self._nested = self._nested, TokenUsage()
        return below

    def reached_limit(self) -> Limit | None:
        """Return the limit that is reached, by this turn or a parent.

        Raises:
            EngineFailure: There is a cost budget, and the price of a model is unknown.
        """
        if self._tokens is not None and self._spent.total_tokens >= self._tokens:
            return "tokens"
        if self._cost_usd is not None:
            if self._spent.cost_usd is None:
                raise EngineFailure(
                    "The turn has a cost budget, but the price of its model is unknown. "
                    "Remove the budget, limit the tokens instead, or use a model with a price.",
                    kind="unknown",
                    retryable=False,
                )
            if self._spent.cost_usd >= self._cost_usd:
                return "cost"
        return None if self._parent is None else self._parent.reached_limit()


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


def stop_reason_of(ending: Ending) -> StopReason:
    """Return the stop reason of a turn that stops after a response with this ending."""
    match ending:
        case "end":
            return "end_turn"
        case "max_tokens":
            return "max_tokens"
        case "tools" | "resume":
            return "tool_use"
        case _:
            assert_never(ending)


def stopped_because(reason: AbortReason, overdue: str) -> tuple[StopReason, EngineError | None]:
    """Return the stop reason and the error of a turn that was stopped."""
    if reason != "timeout":
        return "aborted", None
    return "timeout", EngineError("timeout", overdue, retryable=True)
