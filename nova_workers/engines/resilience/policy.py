"""How patient to be, in numbers."""

from dataclasses import dataclass

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers of resilience.

    Attributes:
        max_retries: Tries after the first for one response of one model; another key for the same try does not count.
        backoff_s: Most of the first pause between tries; it doubles. The pause is a random part of it, at least half.
        backoff_cap_s: Longest pause of our own.
        retry_after_cap_s: Longest pause that the provider can ask for between tries; of a longer one, this much.
        breaker_failures: Consecutive failures of a model, over the whole fleet, that open its breaker.
        breaker_open_s: How long it stays open, until one call may try.
        breaker_patience_s: Longest time that a call waits for a breaker where no other model can take its place.
        rate_cooldown_s: First cool-down of a key that met its rate limit, where the provider does not say; it doubles.
        rate_cooldown_cap_s: The longest one.
        auth_cooldown_s: First cool-down of a key that was refused; it doubles.
        auth_cooldown_cap_s: The longest one.
        cooldown_patience_s: Longest cool-down that a call waits for where no other key or model can take its place.
        health_cache_s: How long a process goes by what it last heard of a healthy model, before it asks Redis again.
        redis_timeout_s: Longest wait for Redis; then the process goes by what it saw itself.
        redis_away_s: How long it does so before it asks again.
    """

    max_retries: int = 5
    backoff_s: float = 0.5
    backoff_cap_s: float = 8.0
    retry_after_cap_s: float = 60.0
    breaker_failures: int = 3
    breaker_open_s: float = 20.0
    breaker_patience_s: float = 60.0
    rate_cooldown_s: float = 5.0
    rate_cooldown_cap_s: float = 300.0
    auth_cooldown_s: float = 60.0
    auth_cooldown_cap_s: float = 3600.0
    cooldown_patience_s: float = 60.0
    health_cache_s: float = 1.0
    redis_timeout_s: float = 1.0
    redis_away_s: float = 5.0

    def backoff(self, retry: int, spread: float) -> float:
        """Return the pause before a retry.

        Args:
            retry: From 1.
            spread: Random, from 0 to 1; keeps those who failed together from coming back together.
        """
        longest_s = min(self.backoff_cap_s, self.backoff_s * 2.0 ** (retry - 1))
        return longest_s * (0.5 + spread / 2)

    def cooldown(self, reason: str, strikes: int) -> float:
        """Return how long a key rests after its `strikes`-th failure in a row, in seconds."""
        if reason == "auth":
            return min(self.auth_cooldown_cap_s, self.auth_cooldown_s * 2.0 ** (strikes - 1))
        return min(self.rate_cooldown_cap_s, self.rate_cooldown_s * 2.0 ** (strikes - 1))
