"""The reasoning effort of a turn, for providers that take no budget in tokens."""

from nova_workers.contracts.engine import EngineOptions

_LOW_TOKENS, _MEDIUM_TOKENS = 4_096, 16_384
"""Thinking budgets up to which low and medium effort are asked for."""


def reasoning_effort(options: EngineOptions) -> str | None:
    """Return the effort to ask for; None leaves it to the model."""
    given = options.engine_config.get("reasoning_effort")
    if isinstance(given, str):
        # The provider refuses what it does not know, with the accepted values.
        return given
    budget = options.thinking_budget_tokens
    if budget is None:
        return None
    return "low" if budget <= _LOW_TOKENS else "medium" if budget <= _MEDIUM_TOKENS else "high"
