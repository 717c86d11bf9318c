"""Usage of models that the code of users asks itself."""

from __future__ import annotations

from collections.abc import Iterable

from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.user_agents import ModelUse
from nova_workers.engines.prices import PriceList
from nova_workers.engines.turn import Budget

_MOST_PROVIDERS = 100


class UsedModels:
    """Counts what steps report against the budgets of a turn: after the fact, for the worker makes no such request."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._prices: dict[str | None, PriceList] = {}

    def count(self, used: Iterable[ModelUse]) -> None:
        """Count what a step used, with its cost where the price list has the model."""
        for each in used:
            tokens = TokenUsage(
                each.input_tokens,
                each.output_tokens,
                each.cache_read_tokens,
                each.cache_write_tokens,
                each.reasoning_tokens,
            )
            self._budget.spend_nested(self._prices_of(each.provider).priced(tokens, (each.model,)))

    def _prices_of(self, provider: str | None) -> PriceList:
        if len(self._prices) >= _MOST_PROVIDERS:
            self._prices.clear()
        return self._prices.setdefault(provider, PriceList(provider))
