"""What the model calls of a program used.

A program reports its usage once, at its end, for all its model calls. The ledger needs it for each step, and a program
that is stopped before its end (the turn waits, is steered, is stopped) reports nothing. So each step before the last is
estimated, and the last gets the rest of what the program reports.
"""

from dataclasses import replace

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.prices import PriceList


class ProgramCount:
    """The usage of one program so far."""

    def __init__(self, prices: PriceList, model: str) -> None:
        self._prices = prices
        self._model = model
        self._read_before = 0
        self._counted = TokenUsage()
        self.model_calls = 0
        """How many responses were counted."""

    def estimate(self, read_tokens: int, produced_tokens: int) -> TokenUsage:
        """Return an estimate for the model call in progress, without counting it.

        Vendors keep the beginning of a conversation in a cache: what an earlier call of the program had counts as read
        from there.
        """
        cached = min(self._read_before, read_tokens)
        return self._prices.priced(
            TokenUsage(input_tokens=read_tokens - cached, output_tokens=produced_tokens, cache_read_tokens=cached),
            (self._model,),
        )

    def step(self, read_tokens: int, produced_tokens: int) -> TokenUsage:
        """Count a model call after which the program continues. Return the estimate."""
        usage = self.estimate(read_tokens, produced_tokens)
        self._read_before = read_tokens + produced_tokens
        self._counted += usage
        self.model_calls += 1
        return usage

    def rest(self, reported: TokenUsage) -> TokenUsage:
        """Return the usage that the program reports at its end, less what was counted."""
        self.model_calls += 1
        total, counted = self._prices.priced(reported, (self._model,)), self._counted
        fresh = total.input_tokens - counted.input_tokens
        cached = total.cache_read_tokens - counted.cache_read_tokens
        # An estimate may have taken for cached what was not, or the other way round: the sum is what counts.
        fresh, cached = fresh + min(cached, 0), cached + min(fresh, 0)
        known = total.cost_usd is not None and counted.cost_usd is not None
        return replace(
            total,
            input_tokens=max(fresh, 0),
            output_tokens=max(total.output_tokens - counted.output_tokens, 0),
            cache_read_tokens=max(cached, 0),
            cost_usd=max((total.cost_usd or 0.0) - (counted.cost_usd or 0.0), 0.0) if known else None,
        )
