"""Context windows and output limits of Anthropic's models."""

from collections.abc import Mapping
from functools import lru_cache

from genai_prices import Usage, calc_price

from nova_workers.engines.models import resolve_model
from nova_workers.engines.resilience import ModelLimits

_OUTPUT_TOKENS = {
    # The provider's limits where they are below what turns request; it refuses requests over them.
    "claude-3-haiku": 4_096,
    "claude-3-opus": 4_096,
    "claude-3-sonnet": 4_096,
    "claude-3-5": 8_192,
    "claude-opus-4-0": 32_000,
    "claude-opus-4-1": 32_000,
    "claude-opus-4-2025": 32_000,
}
_UNKNOWN_TOKENS = 200_000
"""The smallest window of the provider's current models."""


class Windows:
    """Context windows: the operator's, then those listed by `genai-prices`, then the default for unknown models."""

    def __init__(
        self,
        overrides: Mapping[str, int] | None = None,
        *,
        aliases: Mapping[str, str] | None = None,
        unknown_tokens: int = _UNKNOWN_TOKENS,
    ) -> None:
        """Take the operator's settings.

        Args:
            overrides: Windows in tokens, by alias or id.
            aliases: Overrides of the alias map.
            unknown_tokens: The window of an unknown model.
        """
        self._aliases = dict(aliases or {})
        self._overrides = {resolve_model(name, self._aliases): tokens for name, tokens in (overrides or {}).items()}
        self._unknown_tokens = unknown_tokens

    def context_tokens(self, model: str) -> int:
        """Return the context window of `model`, an alias or an id."""
        model_id = resolve_model(model, self._aliases)
        return self._overrides.get(model_id) or _listed(model_id) or self._unknown_tokens

    def limits(self, model: str) -> ModelLimits:
        """Return the known limits of `model`, an alias or an id."""
        model_id = resolve_model(model, self._aliases)
        output = next((tokens for prefix, tokens in _OUTPUT_TOKENS.items() if model_id.startswith(prefix)), None)
        return ModelLimits(self.context_tokens(model_id), output)


@lru_cache(maxsize=256)
def _listed(model_id: str) -> int | None:
    try:
        return calc_price(Usage(input_tokens=1), model_id, provider_id="anthropic").model.context_window
    except LookupError:
        return None
