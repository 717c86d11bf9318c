"""A turn's budgets and its usage."""

from __future__ import annotations

from nova_workers.contracts.engine import EngineOptions, Limit
from nova_workers.contracts.usage import TokenUsage
from nova_workers.errors import EngineFailure

__all__ = ["Budget"]


class Budget:
    """Counts a turn's tokens and cost against its limits, and against those of its parent turn."""

    def __init__(self, options: EngineOptions, parent: Budget | None = None) -> None:
        self._tokens = options.token_budget
        self._cost_usd = options.cost_budget_usd
        self._spent = options.spent
        self._parent = parent
        self._nested = TokenUsage()

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
