"""Breakers and cool-downs of one process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nova_workers.engines.resilience.health import Cooldown, CooldownReason, Health
from nova_workers.engines.resilience.policy import Policy

__all__ = ["FAILURES_LIFE", "PROBE_POLL_S", "STRIKES_LIFE", "MemoryHealth"]

PROBE_POLL_S = 0.5
"""How often a waiting call checks whether the probe has ended."""
STRIKES_LIFE = 2.0
"""A key that works for this many times its last cool-down starts again with the shortest one."""
FAILURES_LIFE = 3.0
"""Failures further apart than this many times the open time are not consecutive."""


@dataclass(slots=True)
class _Breaker:
    failures: int = 0
    open_until_s: float = 0.0
    probe_until_s: float = 0.0
    forgotten_s: float = 0.0


@dataclass(slots=True)
class _Rest:
    reason: CooldownReason
    strikes: int
    until_s: float
    forgotten_s: float


class MemoryHealth:
    """Implements `HealthStore` without a server."""

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        """Take the policy, and a monotonic clock in seconds."""
        self._policy = policy
        self._clock = clock
        self._breakers: dict[str, _Breaker] = {}
        self._rests: dict[tuple[str, str | None], _Rest] = {}

    async def admit(self, model: str, profiles: Sequence[str]) -> Health:
        """See `HealthStore.admit`."""
        now_s = self._clock()
        cooling = {profile: rest for profile in profiles if (rest := self._cooldown(profile, model, now_s))}
        breaker = self._breaker(model, now_s)
        if breaker is None:
            return Health(cooling=cooling)
        if breaker.failures < self._policy.breaker_failures:
            return Health(0.0, breaker.failures, cooling)
        if now_s < breaker.open_until_s:
            return Health(breaker.open_until_s - now_s, breaker.failures, cooling)
        if now_s < breaker.probe_until_s:
            return Health(min(PROBE_POLL_S, breaker.probe_until_s - now_s), breaker.failures, cooling)
        free = len(cooling) < len(profiles)
        if free:
            breaker.probe_until_s = now_s + self._policy.breaker_open_s
        return Health(0.0, breaker.failures, cooling, probe=free)

    async def fail(self, model: str) -> bool:
        """See `HealthStore.fail`."""
        now_s = self._clock()
        breaker = self._breaker(model, now_s) or _Breaker()
        self._breakers[model] = breaker
        breaker.failures += 1
        if breaker.failures >= self._policy.breaker_failures and now_s >= breaker.open_until_s:
            breaker.open_until_s = now_s + self._policy.breaker_open_s
            breaker.probe_until_s = 0.0
        breaker.forgotten_s = now_s + self._policy.breaker_open_s * FAILURES_LIFE
        return now_s < breaker.open_until_s

    async def recover(self, model: str) -> None:
        """See `HealthStore.recover`."""
        self._breakers.pop(model, None)

    async def release(self, model: str) -> None:
        """See `HealthStore.release`."""
        breaker = self._breakers.get(model)
        if breaker is not None:
            breaker.probe_until_s = 0.0

    async def cool(self, profile: str, model: str | None, reason: CooldownReason, retry_after_s: float | None) -> float:
        """See `HealthStore.cool`."""
        now_s = self._clock()
        rest = self._rests.get((profile, model))
        if rest is not None and now_s < rest.until_s:
            if retry_after_s is not None:
                rest.until_s = max(rest.until_s, now_s + retry_after_s)
                rest.forgotten_s = max(rest.forgotten_s, rest.until_s)
            return rest.until_s - now_s
        strikes = 1 + (rest.strikes if rest is not None and now_s < rest.forgotten_s else 0)
        rest_s = self._policy.cooldown(reason, strikes) if retry_after_s is None else retry_after_s
        self._rests[profile, model] = _Rest(reason, strikes, now_s + rest_s, now_s + rest_s * (1 + STRIKES_LIFE))
        return rest_s

    def _breaker(self, model: str, now_s: float) -> _Breaker | None:
        breaker = self._breakers.get(model)
        if breaker is not None and now_s >= breaker.forgotten_s:
            del self._breakers[model]
            return None
        return breaker

    def _cooldown(self, profile: str, model: str, now_s: float) -> Cooldown | None:
        for scope in (None, model):
            rest = self._rests.get((profile, scope))
            if rest is not None and now_s < rest.until_s:
                return Cooldown(rest.reason, rest.until_s)
        return None
