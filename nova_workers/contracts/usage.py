"""Token counts and their cost."""

from dataclasses import dataclass
from typing import Final

__all__ = ["CHARS_PER_TOKEN", "TokenUsage"]

CHARS_PER_TOKEN: Final = 4
"""Estimate where no provider counted: English prose has about four characters a token."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one or more model calls, and their cost.

    `input_tokens` counts what was neither read from nor written to the prompt cache, as the provider bills it.
    `cost_usd` is None if the model's price is unknown; tokens are still counted.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = 0.0

    @property
    def total_tokens(self) -> int:
        """All tokens that were read, written or produced."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        """Add counts; a sum with an unknown cost has an unknown cost."""
        known = self.cost_usd is not None and other.cost_usd is not None
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )
