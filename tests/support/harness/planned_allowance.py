"""An allowance whose answers a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field

from nova_workers.base.errors import EngineFailure
from nova_workers.base.vocabulary import Limit
from nova_workers.contracts.usage import CallBound, TokenUsage


@dataclass
class Reserved:
    """A reservation, and what was used of it."""

    output_tokens: int
    limit: Limit | None = None
    used: list[TokenUsage] = field(default_factory=list[TokenUsage])

    async def settle(self, usage: TokenUsage) -> None:
        """Note the usage."""
        self.drop(usage)

    def drop(self, usage: TokenUsage) -> None:
        """Note the usage, the first time."""
        if not self.used:
            self.used.append(usage)


class PlannedAllowance:
    """Grants as many tokens as it was made with, call by call; refuses after that."""

    def __init__(self, *granted: int) -> None:
        self.granted = list(granted)
        self.bounds: list[CallBound] = []
        self.reserved: list[Reserved] = []
        self.nested_calls = 0

    async def reserve(self, bound: CallBound) -> Reserved:
        """Grant the next number of tokens."""
        self.bounds.append(bound)
        if not self.granted:
            raise EngineFailure("Spent.", kind="budget_exceeded", retryable=False, limit="cost")
        tokens = min(self.granted.pop(0), bound.output_tokens)
        self.reserved.append(Reserved(tokens, "cost" if tokens < bound.output_tokens else None))
        return self.reserved[-1]

    def nested(self) -> PlannedAllowance:
        """Return itself."""
        self.nested_calls += 1
        return self
