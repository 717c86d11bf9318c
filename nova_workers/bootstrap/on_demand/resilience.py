"""The state of a provider's keys and models that all workers share."""

import hashlib
from collections.abc import Iterable, Mapping

from nova_workers.base import keys
from nova_workers.base.config.models import ModelRateLimit
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.engines.resilience import (
    HealthKeys,
    Policy,
    RateLimit,
    RateLimiter,
    RedisHealth,
    Resilience,
    SharedHealth,
)

_OPEN_GROWTH = 10
"""The longest open time of a breaker, in first ones."""


def resilience(
    parts: EngineParts,
    provider: str,
    profiles: Iterable[tuple[str, str]],
    rate_limits: Mapping[str, ModelRateLimit] | None = None,
) -> Resilience:
    """Return the state of a provider's keys and models.

    Args:
        parts: The policy in the settings, what the state is stored in, and what it is measured with.
        provider: Its name in keys of Redis.
        profiles: Names of keys, and the keys: a replaced key starts without the cool-down of the old one.
        rate_limits: By the id of a model; ``*`` is for each model that is not named.
    """
    return parts.shared(Resilience, lambda: _make(parts, provider, dict(profiles), rate_limits or {}), name=provider)


def _make(
    parts: EngineParts, provider: str, profiles: Mapping[str, str], rate_limits: Mapping[str, ModelRateLimit]
) -> Resilience:
    model, redis, clock = parts.settings.model, parts.redis, parts.clock
    policy = Policy(
        max_retries=model.max_retries,
        breaker_failures=model.breaker_failures,
        breaker_open_s=model.breaker_open_s,
        breaker_open_cap_s=model.breaker_open_s * _OPEN_GROWTH,
    )
    digests = {name: hashlib.sha256(key.encode()).hexdigest()[:8] for name, key in profiles.items()}
    names = HealthKeys(
        provider=provider,
        index=keys.model_rests(),
        breaker=lambda name: keys.model_breaker(provider, name),
        failed=lambda name: keys.model_failures(provider, name),
        cooldown=lambda profile, name: keys.profile_cooldown(provider, profile, digests[profile], name),
    )
    rates = {name: RateLimit(limit.requests_per_minute, limit.tokens_per_minute) for name, limit in rate_limits.items()}
    return Resilience(
        policy,
        SharedHealth(RedisHealth(redis, names, policy, clock.monotonic_s), policy, clock.monotonic_s),
        RateLimiter(rates, redis=redis, key_prefix=keys.model_rate_limits(provider), namespace=provider),
        parts.metrics,
        clock.monotonic_s,
    )
