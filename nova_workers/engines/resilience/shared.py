"""The state of resilience that all turns of a process share."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nova_workers.engines.resilience.health import CooldownReason, Failure, Health, HealthStore
from nova_workers.engines.resilience.limiter import RateLimiter
from nova_workers.engines.resilience.memory_health import MemoryHealth
from nova_workers.engines.resilience.policy import Policy
from nova_workers.engines.resilience.redis_link import RedisLink
from nova_workers.engines.resilience.seam import NoMetrics, ResilienceMetrics

_T = TypeVar("_T")


class SharedHealth:
    """Implements `HealthStore` over a shared one.

    A process asks about a healthy model at most once in `Policy.health_cache_s`, and about a failing one at each call.
    It also keeps its own observations in memory, to use if Redis becomes unavailable.
    """

    def __init__(self, shared: HealthStore | None, policy: Policy, clock: Callable[[], float]) -> None:
        """Keep the shared store, if any, the policy, and a monotonic clock in seconds."""
        self._shared = shared
        self._own = MemoryHealth(policy, clock)
        self._policy = policy
        self._clock = clock
        self._link = RedisLink(
            timeout_s=policy.redis_timeout_s, away_s=policy.redis_away_s, clock=clock, purpose="model health"
        )
        self._cached: dict[tuple[str, tuple[str, ...]], tuple[float, Health]] = {}
        self._failing: set[str] = set()
        self._answered_s: dict[str, float] = {}

    def is_failing(self, model: str) -> bool:
        """Return whether this process knows of recent failures of a model, or of its open breaker."""
        return model in self._failing

    async def admit(self, model: str, profiles: Sequence[str], conversation: str) -> Health:
        """See `HealthStore.admit`."""
        key = (model, tuple(profiles))
        cached = self._cached.get(key)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        health = await self._first(lambda store: store.admit(model, profiles, conversation))
        if health.failures or health.breaker != "closed":
            self._failing.add(model)
        else:
            self._failing.discard(model)
        if health.breaker == "closed":
            # It is the same for every conversation.
            until_s = self._clock() + self._policy.health_cache_s
            until_s = min((until_s, *(rest.until_s for rest in health.cooling.values())))
            self._cached[key] = (until_s, health)
        return health

    async def fail(self, model: str, failure: Failure) -> bool:
        """See `HealthStore.fail`. `Failure.answered_ago_s` is filled in."""
        self._cached.clear()
        self._failing.add(model)
        answered_s = self._answered_s.get(model)
        if answered_s is not None:
            failure = replace(failure, answered_ago_s=self._clock() - answered_s)
        return await self._both(lambda store: store.fail(model, failure))

    def answered(self, model: str) -> None:
        """Record that the model answered, for the next failure. Costs no round trip."""
        self._answered_s[model] = self._clock()

    async def recover(self, model: str, conversation: str) -> None:
        """See `HealthStore.recover`."""
        self._cached.clear()
        self._failing.discard(model)
        await self._both(lambda store: store.recover(model, conversation))

    async def release(self, model: str, conversation: str) -> None:
        """See `HealthStore.release`."""
        await self._both(lambda store: store.release(model, conversation))

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
        self._cached.clear()
        return await self._both(lambda store: store.cool(profile, model, reason, retry_after_s, error=error))

    async def _both(self, ask: Callable[[HealthStore], Awaitable[_T]]) -> _T:
        own = await ask(self._own)
        answer = await self._ask_shared(ask)
        return own if answer is None else answer[0]

    async def _first(self, ask: Callable[[HealthStore], Awaitable[_T]]) -> _T:
        answer = await self._ask_shared(ask)
        return await ask(self._own) if answer is None else answer[0]

    async def _ask_shared(self, ask: Callable[[HealthStore], Awaitable[_T]]) -> tuple[_T] | None:
        shared = self._shared
        return None if shared is None else await self._link.ask(lambda: ask(shared))


@dataclass(slots=True)
class Call:
    """A call that was admitted.

    Attributes:
        conversation: The opaque id of its conversation.
        is_probe: Whether it is the probe, whose outcome is still to be reported.
        failed_before: Whether the same request failed before.
    """

    model: str
    conversation: str
    is_probe: bool
    failed_before: bool


@dataclass(frozen=True, slots=True)
class Resilience:
    """Policy, health, limits and metrics."""

    policy: Policy
    health: SharedHealth
    limiter: RateLimiter
    metrics: ResilienceMetrics = field(default_factory=NoMetrics)
    clock: Callable[[], float] = time.monotonic
    spread: Callable[[], float] = random.random
    _reports: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @classmethod
    def of_one_process(cls, policy: Policy) -> "Resilience":
        """Return one that shares nothing with other processes, and has no rate limit."""
        return cls(policy, SharedHealth(None, policy, time.monotonic), RateLimiter({}))

    @contextmanager
    def admitted(self, call: Call) -> Generator[None]:
        """Release the probe if the block ends without a report, because the turn was stopped.

        This happens in the background, since a turn must stop at once.
        """
        try:
            yield
        finally:
            if call.is_probe:
                self._report(self.health.release(call.model, call.conversation), "release-probe")

    def answered(self, call: Call) -> None:
        """Record that a model began to answer; if it was failing, report the recovery to all workers.

        The report is sent in the background while the response streams. A healthy model costs no round trip.
        """
        call.is_probe = False
        self.health.answered(call.model)
        if call.failed_before or self.health.is_failing(call.model):
            self._report(self.health.recover(call.model, call.conversation), "report-recovery")
            self.metrics.set_breaker_open(call.model, is_open=False)

    def _report(self, telling: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(telling, name=name)
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def close(self) -> None:
        """Wait for pending reports."""
        if self._reports:
            await asyncio.wait(self._reports)
