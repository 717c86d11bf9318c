"""Settings of resilience: retries, pauses, breakers, cool-downs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of resilience.

    Attributes:
        max_retries: Retries for one response of one model; using another key does not count.
        backoff_s: Upper limit of the first pause; it doubles. The pause is random between half of it and all of it.
        backoff_cap_s: Longest pause that we choose.
        breaker_failures: Different conversations that a model must fail one after the other, in the whole fleet, to
            open its breaker.
        breaker_open_s: How long it stays open until it admits a probe; doubles with each failed probe.
        breaker_open_cap_s: The longest such time, and the lease of a probe.
        conversation_memory_s: How long a conversation is known to fail by itself.
        probe_poll_s: How often a waiting call checks whether the probe has ended.
        probe_hold_s: How long after its wait a call is expected back; until then the probe is kept for it.
        rate_cooldown_s: First cool-down of a rate-limited key, if the provider gives no time; it doubles.
        rate_cooldown_cap_s: The longest one.
        auth_cooldown_s: First cool-down of a refused key; it doubles.
        auth_cooldown_cap_s: The longest one.
        patience_s: Longest time in pauses and waits for one response of one model. After that another model is used,
            or the turn fails with an `Outage`, so that its run waits without a worker slot.
        notice_after_s: A pause is reported once the pauses of a response reach this time together.
        health_cache_s: How long a process caches that a model is healthy, before it asks Redis again.
        redis_timeout_s: Longest wait for Redis; after that the process uses its own state.
        redis_away_s: How long it does so before it asks Redis again.
    """

    max_retries: int = 5
    backoff_s: float = 0.5
    backoff_cap_s: float = 8.0
    breaker_failures: int = 2
    breaker_open_s: float = 2.0
    breaker_open_cap_s: float = 20.0
    conversation_memory_s: float = 600.0
    probe_poll_s: float = 0.5
    probe_hold_s: float = 1.0
    rate_cooldown_s: float = 5.0
    rate_cooldown_cap_s: float = 300.0
    auth_cooldown_s: float = 5.0
    auth_cooldown_cap_s: float = 300.0
    patience_s: float = 5.0
    notice_after_s: float = 1.0
    health_cache_s: float = 1.0
    redis_timeout_s: float = 1.0
    redis_away_s: float = 5.0

    def backoff(self, retry: int, spread: float) -> float:
        """Return the pause before a retry.

        Args:
            retry: From 1.
            spread: Random, from 0 to 1; keeps calls that failed together from retrying together.
        """
        longest_s = min(self.backoff_cap_s, self.backoff_s * 2.0 ** (retry - 1))
        return longest_s * (0.5 + spread / 2)

    def open_time(self, failed_probes: int) -> float:
        """Return how long a breaker is open after the `failed_probes`-th failed probe, in seconds."""
        return min(self.breaker_open_cap_s, self.breaker_open_s * 2.0**failed_probes)

    def cooldown(self, reason: str, strikes: int) -> float:
        """Return the cool-down of a key after its `strikes`-th consecutive failure, in seconds."""
        if reason == "auth":
            return min(self.auth_cooldown_cap_s, self.auth_cooldown_s * 2.0 ** (strikes - 1))
        return min(self.rate_cooldown_cap_s, self.rate_cooldown_s * 2.0 ** (strikes - 1))
