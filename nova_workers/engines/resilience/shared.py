"""The state of resilience that all turns of a process share."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from nova_workers.engines.resilience.health import Health
from nova_workers.engines.resilience.limiter import RateLimiter
from nova_workers.engines.resilience.policy import Policy
from nova_workers.engines.resilience.seam import NoMetrics, ResilienceMetrics
from nova_workers.engines.resilience.shared_health import SharedHealth

__all__ = ["Probe", "Resilience"]


@dataclass(slots=True)
class Probe:
    """Whether the outcome of a call was reported, or need not be."""

    reported: bool


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
    def probing(self, model: str, health: Health) -> Generator[Probe]:
        """Release the probe if the block ends without a report, because the turn was stopped.

        This happens in the background, since a turn must stop at once.
        """
        probe = Probe(reported=not health.probe)
        try:
            yield probe
        finally:
            if not probe.reported:
                self._report(self.health.release(model), "release-probe")

    def answered(self, model: str, probe: Probe) -> None:
        """Record that a model began to answer; if it was failing, report the recovery to all workers.

        The report is sent in the background while the response streams. A healthy model costs no round trip.
        """
        probe.reported = True
        if self.health.is_failing(model):
            self._report(self.health.recover(model), "report-recovery")
            self.metrics.set_breaker_open(model, is_open=False)

    def _report(self, telling: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(telling, name=name)
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def close(self) -> None:
        """Wait for pending reports."""
        if self._reports:
            await asyncio.wait(self._reports)
