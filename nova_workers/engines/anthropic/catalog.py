"""The cost of the usage of the provider's models."""

from collections.abc import Mapping

from anthropic.types.beta import BetaUsage

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.prices import ModelPrice, PriceList


class Prices(PriceList):
    """The provider's prices."""

    def __init__(self, overrides: Mapping[str, ModelPrice] | None = None) -> None:
        """Take the operator's prices by model id, which take precedence over the list's."""
        super().__init__("anthropic", overrides)

    def usage(self, usage: BetaUsage, model: str, asked: str | None = None) -> TokenUsage:
        """Return the provider's counts as the contract's usage, with the cost of tokens and web searches.

        Args:
            usage: The counts.
            model: The model that answered, as the provider names it.
            asked: The requested model, used if the answering model's name has no price.
        """
        searches = bounds.count(getattr(usage.server_tool_use, "web_search_requests", None))
        tokens = TokenUsage(
            input_tokens=bounds.count(usage.input_tokens),
            output_tokens=bounds.count(usage.output_tokens),
            cache_read_tokens=bounds.count(usage.cache_read_input_tokens),
            cache_write_tokens=bounds.count(usage.cache_creation_input_tokens),
            reasoning_tokens=bounds.count(getattr(usage.output_tokens_details, "thinking_tokens", None)),
        )
        return self.priced(tokens, (model,) if asked is None else (model, asked), searches)
