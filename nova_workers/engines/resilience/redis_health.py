"""Breakers and cool-downs that all workers share, in Redis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from redis.asyncio import Redis

from nova_workers.engines.resilience.health import Cooldown, CooldownReason, Health
from nova_workers.engines.resilience.memory_health import FAILURES_LIFE, PROBE_POLL_S, STRIKES_LIFE
from nova_workers.engines.resilience.policy import Policy

__all__ = ["HealthKeys", "RedisHealth"]

_SCOPES = 2
"""Cool-downs per profile: of the key for all models, and of the key with this model."""


@dataclass(frozen=True, slots=True)
class HealthKeys:
    """Redis keys of the breaker of a model, and of the cool-down of a profile (for a model)."""

    breaker: Callable[[str], str]
    cooldown: Callable[[str, str | None], str]


def _script(name: str) -> str:
    return files("nova_workers.engines.resilience").joinpath(name).read_text("utf-8")


class RedisHealth:
    """Implements `HealthStore` in Redis, with one atomic round trip per call. Raises the client's errors."""

    def __init__(self, redis: Redis, keys: HealthKeys, policy: Policy, clock: Callable[[], float]) -> None:
        """Take a client, the Redis keys, the policy, and a monotonic clock in seconds."""
        self._keys = keys
        self._policy = policy
        self._clock = clock
        self._redis = redis
        self._admit = redis.register_script(_script("admit.lua"))
        self._fail = redis.register_script(_script("fail.lua"))
        self._cool = redis.register_script(_script("cool.lua"))
        self._release = redis.register_script(_script("release.lua"))

    async def admit(self, model: str, profiles: Sequence[str]) -> Health:
        """See `HealthStore.admit`."""
        policy = self._policy
        keys = [self._keys.breaker(model)]
        for profile in profiles:
            keys += (self._keys.cooldown(profile, None), self._keys.cooldown(profile, model))
        args = [policy.breaker_failures, _ms(policy.breaker_open_s), _ms(PROBE_POLL_S), _SCOPES]
        wait_ms, failures, *rests = await self._admit(keys=keys, args=args)
        now_s = self._clock()
        cooling: dict[str, Cooldown] = {}
        for at, profile in enumerate(profiles):
            altogether, for_model = rests[4 * at : 4 * at + 2], rests[4 * at + 2 : 4 * at + 4]
            rest_ms, reason = altogether if altogether[0] > 0 else for_model
            if rest_ms > 0:
                cooling[profile] = Cooldown("auth" if _text(reason) == "auth" else "rate_limit", now_s + rest_ms / 1000)
        probe = wait_ms == 0 and failures >= policy.breaker_failures and len(cooling) < len(profiles)
        return Health(wait_ms / 1000, failures, cooling, probe=probe)

    async def fail(self, model: str) -> bool:
        """See `HealthStore.fail`."""
        policy = self._policy
        args = [policy.breaker_failures, _ms(policy.breaker_open_s), _ms(policy.breaker_open_s * FAILURES_LIFE)]
        return bool(await self._fail(keys=[self._keys.breaker(model)], args=args))

    async def recover(self, model: str) -> None:
        """See `HealthStore.recover`."""
        await self._redis.delete(self._keys.breaker(model))

    async def release(self, model: str) -> None:
        """See `HealthStore.release`."""
        await self._release(keys=[self._keys.breaker(model)])

    async def cool(self, profile: str, model: str | None, reason: CooldownReason, retry_after_s: float | None) -> float:
        """See `HealthStore.cool`."""
        policy = self._policy
        cap_s = policy.auth_cooldown_cap_s if reason == "auth" else policy.rate_cooldown_cap_s
        asked_ms = -1 if retry_after_s is None else _ms(retry_after_s)
        args = [reason, _ms(policy.cooldown(reason, 1)), _ms(cap_s), asked_ms, STRIKES_LIFE]
        return int(await self._cool(keys=[self._keys.cooldown(profile, model)], args=args)) / 1000


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()
