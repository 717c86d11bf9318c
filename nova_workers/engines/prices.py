"""The cost of model calls: by the operator's prices, or else by the price list of `genai-prices`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo

from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.usage import TokenPrice, TokenUsage
from nova_workers.engines import bounds

_log = structlog.get_logger(__name__)

_MILLION = 1_000_000
_THOUSAND = 1_000
_MOST_NAMES = 1_000


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


class PriceList:
    """The prices of one provider's models. Warns once of each model without a known price."""

    def __init__(self, provider: str | None, overrides: Mapping[str, ModelPrice] | None = None) -> None:
        """Take the operator's prices. The first lookup in a process loads the list: 4 MB, and 18 ms of CPU.

        Args:
            provider: The provider's id in `genai-prices`; None: only the operator's prices count.
            overrides: The operator's prices by model id, which take precedence; ``*`` is for each other model.
        """
        self._provider = provider
        self._overrides = dict(overrides or {})
        self._unlisted: set[str] = set()
        self._warned_of: set[str] = set()

    def priced(self, tokens: TokenUsage, models: Sequence[str], searches: int = 0) -> TokenUsage:
        """Return `tokens` with their cost, which is None if no price is known.

        Args:
            tokens: The counts.
            models: The model that answered, as the provider names it, then the requested one: a provider may answer
                with the name of a dated snapshot, a gateway with one of its own.
            searches: Web searches by the provider.
        """
        cost_usd = self._cost_usd(models, tokens, searches)
        if cost_usd is None and models[0] not in self._warned_of:
            _remember(self._warned_of, models[0])
            _log.warning("model_price_unknown", model=models[0], hint="Tokens are counted, the cost is not known.")
        return replace(tokens, cost_usd=None if cost_usd is None else min(cost_usd, bounds.MAX_COST_USD))

    def per_token(self, model: str) -> TokenPrice | None:
        """Return the most that a token costs, whether it is new or cached; None if no price is known."""
        read = self._cost_usd((model,), TokenUsage(input_tokens=_MILLION), 0)
        written = self._cost_usd((model,), TokenUsage(cache_write_tokens=_MILLION), 0)
        produced = self._cost_usd((model,), TokenUsage(output_tokens=_MILLION), 0)
        if read is None or written is None or produced is None:
            return None
        return TokenPrice(max(read, written) / _MILLION, produced / _MILLION)

    def knows(self, model: str) -> bool:
        """Return whether the model has a price."""
        return self._cost_usd((model,), TokenUsage(), 0) is not None

    def context_tokens(self, model: str) -> int | None:
        """Return the context window that the list names for the model."""
        listed = self._look_up(model, Usage(input_tokens=1))
        return None if listed is None else listed[1].context_window

    def _cost_usd(self, models: Sequence[str], tokens: TokenUsage, searches: int) -> float | None:
        """Return the cost by the first name with an operator's price, or else by the first listed name."""
        for model in models:
            if model in self._overrides:
                return self._overrides[model].cost_usd(tokens, searches)
        if "*" in self._overrides:
            return self._overrides["*"].cost_usd(tokens, searches)
        return next(
            (cost for model in models if (cost := self._listed(model, tokens, searches)) is not None),
            None,
        )

    def _listed(self, model: str, tokens: TokenUsage, searches: int) -> float | None:
        # The price list includes cached tokens in the input and prices them separately.
        usage = Usage(
            input_tokens=tokens.input_tokens + tokens.cache_read_tokens + tokens.cache_write_tokens,
            cache_read_tokens=tokens.cache_read_tokens,
            cache_write_tokens=tokens.cache_write_tokens,
            output_tokens=tokens.output_tokens,
            web_searches=searches,
        )
        listed = self._look_up(model, usage)
        return None if listed is None else listed[0]

    def _look_up(self, model: str, usage: Usage) -> tuple[float, ModelInfo] | None:
        if self._provider is None or model in self._unlisted:
            return None
        try:
            found = calc_price(usage, model, provider_id=self._provider)
        except LookupError:
            _remember(self._unlisted, model)
            return None
        return float(found.total_price), found.model


def _remember(names: set[str], name: str) -> None:
    """Add a name that a provider sent, which may be a new one with each response."""
    if len(names) >= _MOST_NAMES:
        names.clear()
    names.add(name)


def unpriced(model: str, where: str) -> EngineError:
    """Return the error of a turn with a cost budget, which cannot be enforced without the price of its model.

    Args:
        where: Where an operator gives it a price.
    """
    return EngineError(
        "unknown",
        f"The turn has a cost budget, and the price of model {model!r} is not known. Give the model a price ({where} "
        "of the workers), or take the budget away: the agent's cost_budget_usd, or max_cost_usd_per_day of the tenant, "
        "the agent or the trigger. A token_budget needs no price.",
        retryable=False,
    )


def listed_provider(base_url: str) -> str | None:
    """Return the id in `genai-prices` of the provider behind an API's address; None if it is not listed."""
    try:
        return get_snapshot().find_provider(None, None, base_url).id
    except LookupError:
        return None
