"""When and how long the clients wait before a request is repeated."""

import random
from dataclasses import dataclass

__all__ = ["Retry"]


_MAX_DOUBLINGS = 30


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
        # Without the bound of the exponent, the thousandth wait would be too large for a float.
        ceiling_s = min(self.max_s, self.base_s * 2 ** min(failures - 1, _MAX_DOUBLINGS))
        return random.uniform(ceiling_s / 2, ceiling_s)  # noqa: S311 - spreads load, guards nothing
