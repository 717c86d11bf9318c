"""What models take and give in one call."""

from collections.abc import Mapping

from genai_prices import Usage, calc_price

from nova_workers.engines.resilience import ModelLimits

__all__ = ["Windows"]

_OUTPUT_TOKENS = {
    # The provider's own bounds where they are below what turns ask for; it refuses a request over them.
    "claude-3-haiku": 4_096,
    "claude-3-opus": 4_096,
    "claude-3-sonnet": 4_096,
    "claude-3-5": 8_192,
    "claude-opus-4-0": 32_000,
    "claude-opus-4-1": 32_000,
    "claude-opus-4-2025": 32_000,
}


class Windows:
    """Context windows, from the operator and then from the list of `genai-prices`."""

    def __init__(self, overrides: Mapping[str, int]) -> None:
        """Take the operator's windows, by model id, in tokens."""
        self._overrides = overrides

    def limits(self, model: str) -> ModelLimits:
        """Return what is known of `model`."""
        output = next((tokens for prefix, tokens in _OUTPUT_TOKENS.items() if model.startswith(prefix)), None)
        return ModelLimits(self._overrides.get(model) or _listed(model), output)


def _listed(model: str) -> int | None:
    try:
        return calc_price(Usage(input_tokens=1), model, provider_id="anthropic").model.context_window
    except LookupError:
        return None
