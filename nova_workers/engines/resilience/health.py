"""The health of a model and of its keys, and the interface of its store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

__all__ = ["Cooldown", "CooldownReason", "Health", "HealthStore"]

CooldownReason = Literal["auth", "rate_limit"]


@dataclass(frozen=True, slots=True)
class Cooldown:
    """The cool-down of a profile."""

    reason: CooldownReason
    until_s: float
    """By the monotonic clock of this process."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a model may be called now, and with which profiles.

    Attributes:
        wait_s: 0: it may be called. Otherwise its breaker is open, or another call is the probe: ask again after this
            time.
        failures: Consecutive failures counted. If there are any, a caller that gets a response must report it.
        cooling: The profiles in a cool-down.
        probe: The caller is the one call that a half-open breaker admits. It must report the outcome with
            `HealthStore.fail`, `recover` or `release`.
    """

    wait_s: float = 0.0
    failures: int = 0
    cooling: Mapping[str, Cooldown] = field(default_factory=dict[str, Cooldown])
    probe: bool = False


class HealthStore(Protocol):
    """Stores breakers and cool-downs: `RedisHealth` for all workers, `MemoryHealth` for one process.

    A breaker counts consecutive failures of a model. At the limit it opens and admits no calls; after a time it admits
    one call as a probe, whose outcome decides. Any response that begins is a success, even to an earlier request: it
    resets the failures and closes the breaker.
    """

    async def admit(self, model: str, profiles: Sequence[str]) -> Health:
        """Ask to call a model. With ``wait_s`` 0 the caller may call, and is the probe if one is due.

        A probe that never reports (its worker crashed) counts as lost after the breaker's open time.
        """
        ...

    async def fail(self, model: str) -> bool:
        """Count a failure. Return whether the breaker is open now."""
        ...

    async def recover(self, model: str) -> None:
        """Reset the failures, because the model answered."""
        ...

    async def release(self, model: str) -> None:
        """Allow another call to be the probe, because this one was stopped without a verdict on the model."""
        ...

    async def cool(self, profile: str, model: str | None, reason: CooldownReason, retry_after_s: float | None) -> float:
        """Start a cool-down of a profile, for one model or for all (None).

        If many calls fail at the same time, the first sets the duration, and the others do not double it.

        Args:
            profile: The profile.
            model: The model; None for all.
            reason: The reason, which determines the duration.
            retry_after_s: The provider's requested wait, which takes precedence over our own duration.

        Returns:
            The remaining cool-down in seconds.
        """
        ...
