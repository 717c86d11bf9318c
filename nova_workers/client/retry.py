"""When and how long the clients wait before a request is repeated."""

import random
from dataclasses import dataclass

__all__ = ["Retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries with exponential backoff and full jitter, so that clients do not retry in lockstep."""

    attempts: int = 15
    """Consecutive failures before an error is raised. With the waits below that is about 40 s, enough for a
    redeployment of the API."""
    base_s: float = 0.1
    max_s: float = 5.0

    def delay_s(self, failures: int) -> float:
        """Return the wait after a number of consecutive failures (1 or more)."""
        ceiling_s = min(self.max_s, self.base_s * 2 ** (failures - 1))
        return random.uniform(ceiling_s / 2, ceiling_s)  # noqa: S311 - spreads load, guards nothing
