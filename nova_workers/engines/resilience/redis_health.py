"""Breakers and cool-downs that all workers share, in Redis."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from redis.asyncio import Redis

from nova_workers.base.observability.addresses import bare_addresses
from nova_workers.base.observability.redaction import redact
from nova_workers.engines.resilience.health import (
    FAILURES_LIFE,
    MOST_CONVERSATIONS,
    STRIKES_LIFE,
    BreakerState,
    Cooldown,
    CooldownReason,
    Failure,
    Health,
)
from nova_workers.engines.resilience.policy import Policy

_SCOPES = 2
"""Cool-downs per profile: of the key for all models, and of the key with this model."""
_INDEX_TTL_S = 14_400
"""Longer than anything in the index lives."""
_ERROR_CHARS = 300
_STATES: dict[str, BreakerState] = {"open": "open", "probe": "probe"}


@dataclass(frozen=True, slots=True)
class HealthKeys:
    """Redis keys of a provider's breakers and cool-downs.

    Attributes:
        provider: Its name, for operators.
        index: Of the keys of all providers that hold something.
        breaker: Of a model.
        failed: Of the conversations that a model failed.
        cooldown: Of a profile, for a model or for all.
    """

    provider: str
    index: str
    breaker: Callable[[str], str]
    failed: Callable[[str], str]
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
        self._admit = redis.register_script(_script("admit.lua"))
        self._fail = redis.register_script(_script("fail.lua"))
        self._recover = redis.register_script(_script("recover.lua"))
        self._release = redis.register_script(_script("release.lua"))
        self._cool = redis.register_script(_script("cool.lua"))

    async def admit(self, model: str, profiles: Sequence[str], conversation: str) -> Health:
        """See `HealthStore.admit`."""
        policy = self._policy
        keys = [self._keys.breaker(model), self._keys.failed(model)]
        for profile in profiles:
            keys += (self._keys.cooldown(profile, None), self._keys.cooldown(profile, model))
        args = [
            conversation,
            _ms(policy.breaker_open_cap_s),
            _ms(policy.probe_poll_s),
            _ms(policy.probe_hold_s),
            _ms(policy.breaker_open_cap_s * FAILURES_LIFE),
            _SCOPES,
        ]
        wait_ms, failures, state, *rests = await self._admit(keys=keys, args=args)
        now_s = self._clock()
        cooling: dict[str, Cooldown] = {}
        for at, profile in enumerate(profiles):
            altogether, for_model = rests[4 * at : 4 * at + 2], rests[4 * at + 2 : 4 * at + 4]
            rest_ms, reason = altogether if altogether[0] > 0 else for_model
            if rest_ms > 0:
                cooling[profile] = Cooldown("auth" if _text(reason) == "auth" else "rate_limit", now_s + rest_ms / 1000)
        return Health(wait_ms / 1000, failures, cooling, _STATES.get(_text(state), "closed"))

    async def fail(self, model: str, failure: Failure) -> bool:
        """See `HealthStore.fail`."""
        policy, ago_s = self._policy, failure.answered_ago_s
        args = [
            failure.conversation,
            policy.breaker_failures,
            _ms(policy.breaker_open_s),
            _ms(policy.breaker_open_cap_s),
            _ms(policy.breaker_open_cap_s * FAILURES_LIFE),
            _ms(policy.conversation_memory_s),
            -1 if ago_s is None else _ms(ago_s),
            MOST_CONVERSATIONS,
            _ms(_INDEX_TTL_S),
            self._keys.provider,
            model,
            bare_addresses(redact(failure.error))[:_ERROR_CHARS],
        ]
        keys = [self._keys.breaker(model), self._keys.failed(model), self._keys.index]
        return bool(await self._fail(keys=keys, args=args))

    async def recover(self, model: str, conversation: str) -> None:
        """See `HealthStore.recover`."""
        await self._recover(keys=[self._keys.breaker(model), self._keys.failed(model)], args=[conversation])

    async def release(self, model: str, conversation: str) -> None:
        """See `HealthStore.release`."""
        await self._release(keys=[self._keys.breaker(model)], args=[conversation])

    async def cool(
        self,
        profile: str,
        model: str | None,
        reason: CooldownReason,
        retry_after_s: float | None = None,
        *,
        error: str = "",
    ) -> float:
        """See `HealthStore.cool`."""
        policy = self._policy
        cap_s = policy.auth_cooldown_cap_s if reason == "auth" else policy.rate_cooldown_cap_s
        args = [
            reason,
            _ms(policy.cooldown(reason, 1)),
            _ms(cap_s),
            -1 if retry_after_s is None else _ms(retry_after_s),
            STRIKES_LIFE,
            _ms(_INDEX_TTL_S),
            self._keys.provider,
            profile,
            model or "",
            bare_addresses(redact(error))[:_ERROR_CHARS],
        ]
        return int(await self._cool(keys=[self._keys.cooldown(profile, model), self._keys.index], args=args)) / 1000


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode()
