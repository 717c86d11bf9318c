"""What a turn may use, and what it has used."""

from __future__ import annotations

from nova_workers.contracts.engine import EngineOptions, Limit
from nova_workers.contracts.usage import TokenUsage
from nova_workers.errors import EngineFailure

__all__ = ["Budget"]


class Budget:
    """Counts tokens and cost of a turn against its bounds. A nested turn counts against its parent's as well."""

    def __init__(self, options: EngineOptions, parent: Budget | None = None) -> None:
        self._tokens = options.token_budget
        self._cost_usd = options.cost_budget_usd
        self._spent = options.spent
        self._parent = parent
        self._below = TokenUsage()

    def spend(self, usage: TokenUsage) -> None:
        """Count what a model call used."""
        self._spent += usage
        if self._parent is not None:
            self._parent.spend_below(usage)

    def spend_below(self, usage: TokenUsage) -> None:
        """Count what a nested turn used."""
        self.spend(usage)
        self._below += usage

    def take_below(self) -> TokenUsage:
        """Return what nested turns used since this was last asked."""
        below, self._below = self._below, TokenUsage()
        return below

    def spent_up(self) -> Limit | None:
        """Return which bound is reached, here or above.

        Raises:
            EngineFailure: There is a bound on cost, and a model whose price is not known.
        """
        if self._tokens is not None and self._spent.total_tokens >= self._tokens:
            return "tokens"
        if self._cost_usd is not None:
            if self._spent.cost_usd is None:
                raise EngineFailure(
                    "The turn has a cost budget, and a model whose price is not known. "
                    "Take the budget away, bound its tokens instead, or use a model with a price.",
                    kind="unknown",
                    retryable=False,
                )
            if self._spent.cost_usd >= self._cost_usd:
                return "cost"
        return None if self._parent is None else self._parent.spent_up()
