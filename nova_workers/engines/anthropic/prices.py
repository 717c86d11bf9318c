"""The cost of model calls: by the operator's prices, or else by the price list of `genai-prices`."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from anthropic.types.beta import BetaUsage
from genai_prices import Usage, calc_price

from nova_workers.contracts.usage import TokenUsage

__all__ = ["ModelPrice", "Prices"]

_log = structlog.get_logger(__name__)

_PROVIDER = "anthropic"


_MILLION = 1_000_000
_THOUSAND = 1_000


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """US dollars per million tokens, and per thousand of the provider's web searches."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    web_search: float = 10.0

    def cost_usd(self, tokens: TokenUsage, searches: int) -> float:
        """Return the cost of `tokens` and `searches`."""
        return (
            tokens.input_tokens * self.input
            + tokens.output_tokens * self.output
            + tokens.cache_read_tokens * self.cache_read
            + tokens.cache_write_tokens * self.cache_write
        ) / _MILLION + searches * self.web_search / _THOUSAND


class Prices:
    """Converts usage and adds its cost. Warns once of each model without a known price."""

    def __init__(self, overrides: Mapping[str, ModelPrice] | None = None) -> None:
        """Take the operator's prices by model id, which take precedence over the list's."""
        self._overrides = dict(overrides or {})
        self._unlisted: set[str] = set()
        self._warned_of: set[str] = set()
        # The first lookup loads the list, which takes 0.2 s (measured): not on the event loop during a turn.
        self._listed("", TokenUsage(), 0)

    def usage(self, usage: BetaUsage, model: str, asked: str | None = None) -> TokenUsage:
        """Return the provider's counts as the contract's usage, with the cost of tokens and web searches.

        Args:
            usage: The counts.
            model: The model that answered, as the provider names it.
            asked: The requested model, used if the answering model's name has no price: a provider may answer with the
                name of a dated snapshot, a gateway with one of its own.
        """
        details = usage.output_tokens_details
        searches = 0 if usage.server_tool_use is None else usage.server_tool_use.web_search_requests
        tokens = TokenUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_input_tokens or 0,
            cache_write_tokens=usage.cache_creation_input_tokens or 0,
            reasoning_tokens=0 if details is None else details.thinking_tokens,
            cost_usd=None,
        )
        cost_usd = self._cost_usd((model,) if asked is None else (model, asked), tokens, searches)
        if cost_usd is None and model not in self._warned_of:
            self._warned_of.add(model)
            _log.warning("model_price_unknown", model=model, hint="Tokens are counted, the cost is not known.")
        return TokenUsage(
            tokens.input_tokens,
            tokens.output_tokens,
            tokens.cache_read_tokens,
            tokens.cache_write_tokens,
            tokens.reasoning_tokens,
            cost_usd,
        )

    def knows(self, model: str) -> bool:
        """Return whether the model has a price."""
        return self._cost_usd((model,), TokenUsage(), 0) is not None

    def _cost_usd(self, models: tuple[str, ...], tokens: TokenUsage, searches: int) -> float | None:
        """Return the cost by the first name with an operator's price, or else by the first listed name."""
        for model in models:
            if model in self._overrides:
                return self._overrides[model].cost_usd(tokens, searches)
        for model in models:
            cost_usd = self._listed(model, tokens, searches)
            if cost_usd is not None:
                return cost_usd
        return None

    def _listed(self, model: str, tokens: TokenUsage, searches: int) -> float | None:
        if model in self._unlisted:
            return None
        # The price list includes cached tokens in the input and prices them separately.
        priced = Usage(
            input_tokens=tokens.input_tokens + tokens.cache_read_tokens + tokens.cache_write_tokens,
            cache_read_tokens=tokens.cache_read_tokens,
            cache_write_tokens=tokens.cache_write_tokens,
            output_tokens=tokens.output_tokens,
            web_searches=searches,
        )
        try:
            return float(calc_price(priced, model, provider_id=_PROVIDER).total_price)
        except LookupError:
            self._unlisted.add(model)
            return None
