"""Token counts and their cost, and the reservation of model calls in budgets that a turn shares with other turns.

Above the seam `Allowance`: the run protocol, which knows the budgets and writes reservations. Below it: engines, which
know what a call uses at most, and make none that is not reserved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from nova_workers.base.vocabulary import Limit

CHARS_PER_TOKEN: Final = 4
"""Estimate where no provider counted: English prose has about four characters a token."""
_ASCII_BYTES_PER_TOKEN: Final = 2
"""At least: English has four, JSON three, and hashes two. Of other texts each byte counts as a token, since tokenizers
have no token for less; of scripts that are rare in their data they do make that many."""


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

    def __add__(self, other: TokenUsage) -> TokenUsage:
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


def most_tokens(text: str) -> int:
    """Return how many tokens a text has at most."""
    encoded = text.encode("utf-8", "surrogatepass")
    ascii_bytes = len(encoded) if text.isascii() else sum(byte < 0x80 for byte in encoded)
    return len(encoded) - ascii_bytes + -(-ascii_bytes // _ASCII_BYTES_PER_TOKEN)


class TokenPrice(NamedTuple):
    """US dollars for one token that a model reads, and for one that it produces."""

    input_usd: float
    output_usd: float


@dataclass(frozen=True, slots=True)
class CallBound:
    """What one model call uses at most.

    Attributes:
        input_tokens: What it reads at most.
        output_tokens: What it produces at most.
        least_output_tokens: With a lower limit the call is not worth making.
        price: Of its model; None if that is not known.
    """

    model: str
    input_tokens: int
    output_tokens: int
    least_output_tokens: int
    price: TokenPrice | None


class Reservation(Protocol):
    """A reserved call.

    Attributes:
        output_tokens: The most that it may produce: less than was asked for where a budget leaves no more.
        limit: That budget's unit, if so.
    """

    @property
    def output_tokens(self) -> int:
        """See above."""
        ...

    @property
    def limit(self) -> Limit | None:
        """See above."""
        ...

    async def settle(self, usage: TokenUsage) -> None:
        """Take note of what the call used. Only the first time it has an effect."""
        ...

    def drop(self, usage: TokenUsage) -> None:
        """Take note likewise, of a call that was stopped: nothing is written."""
        ...


class Allowance(Protocol):
    """What a turn may still use of the budgets that it shares."""

    async def reserve(self, bound: CallBound) -> Reservation:
        """Reserve a call; wait while open calls of other turns leave too little. May be canceled at any await.

        Raises:
            EngineFailure: A budget does not afford the call (``budget_exceeded``; the field ``limit`` is its unit), or
                the price of the model is not known.
            RunLost: Another claim holds the run.
        """
        ...

    def nested(self) -> Allowance:
        """Return the allowance for calls whose usage is committed later than right after them: a subagent's."""
        ...
