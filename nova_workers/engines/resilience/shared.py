"""What all turns of a process share of resilience."""

import asyncio
import random
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from nova_workers.engines.resilience.health import Health, HealthStore
from nova_workers.engines.resilience.limiter import RateLimiter
from nova_workers.engines.resilience.policy import Policy
from nova_workers.engines.resilience.seam import NoMetrics, ResilienceMetrics
from nova_workers.engines.resilience.shared_health import SharedHealth

__all__ = ["Probe", "Resilience"]


@dataclass(slots=True)
class Probe:
    """Whether the end of a call has been told, or need not be."""

    reported: bool


@dataclass(frozen=True, slots=True)
class Resilience:
    """Policy, health, limits and metrics."""

    policy: Policy
    health: HealthStore
    limiter: RateLimiter
    metrics: ResilienceMetrics = field(default_factory=NoMetrics)
    clock: Callable[[], float] = time.monotonic
    spread: Callable[[], float] = random.random
    _releases: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @classmethod
    def of_one_process(cls, policy: Policy) -> "Resilience":
        """Return one that shares nothing with other processes, and has no rate limit."""
        return cls(policy, SharedHealth(None, policy, time.monotonic), RateLimiter({}))

    @contextmanager
    def probing(self, model: str, health: Health) -> Generator[Probe]:
        """Let another call be the probe where the block ends without a report: it was stopped.

        Not awaited, since a turn that is stopped stops at once.
        """
        probe = Probe(reported=not health.probe)
        try:
            yield probe
        finally:
            if not probe.reported:
                task = asyncio.create_task(self.health.release(model), name="release-probe")
                self._releases.add(task)
                task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Wait for what turns that were stopped left to be said."""
        if self._releases:
            await asyncio.wait(self._releases)
