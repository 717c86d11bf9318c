"""What is known of a model and of the keys that reach it, and the seam behind which that is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

__all__ = ["Cooldown", "CooldownReason", "Health", "HealthStore"]

CooldownReason = Literal["auth", "rate_limit"]


@dataclass(frozen=True, slots=True)
class Cooldown:
    """A profile that rests."""

    reason: CooldownReason
    until_s: float
    """On the clock of the process that was told."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a model may be called now, and with which profiles.

    Attributes:
        wait_s: 0: it may be called. Else its breaker is open, or another call tries whether it is well again: ask again
            after this time.
        failures: Consecutive failures that are counted. Whoever is answered now has to report it if there are any.
        cooling: The profiles that rest.
        probe: The caller is the one call that is let through by a breaker that is half open. It reports what comes of
            it with `HealthStore.fail`, `recover` or `release`.
    """

    wait_s: float = 0.0
    failures: int = 0
    cooling: Mapping[str, Cooldown] = field(default_factory=dict[str, Cooldown])
    probe: bool = False


class HealthStore(Protocol):
    """Keeps breakers and cool-downs. `RedisHealth` for all workers, `MemoryHealth` for one process.

    A breaker counts consecutive failures of a model. At the limit it opens, and nobody calls; after its time one
    call is let through as a probe, and decides. A response that begins is a success, whenever it was asked for: it
    resets the failures, and closes the breaker.
    """

    async def admit(self, model: str, profiles: Sequence[str]) -> Health:
        """Ask to call a model. With ``wait_s`` 0 the caller may, and is the probe if one is due.

        A probe that never reports (its worker died) counts as lost after the time that a breaker is open.
        """
        ...

    async def fail(self, model: str) -> bool:
        """Count a failure. True when the breaker is open now."""
        ...

    async def recover(self, model: str) -> None:
        """Forget the failures: the model answered."""
        ...

    async def release(self, model: str) -> None:
        """Let another call be the probe: this one was stopped, and says nothing of the model."""
        ...

    async def cool(self, profile: str, model: str | None, reason: CooldownReason, retry_after_s: float | None) -> float:
        """Put a profile to rest, for one model or altogether (None).

        Of many calls that fail at the same time the first sets the time; the others do not double it.

        Args:
            profile: Which.
            model: For which model, None for all.
            reason: Why; it decides how long.
            retry_after_s: What the provider asked for; goes before our own reckoning.

        Returns:
            For how long it rests from now, in seconds.
        """
        ...
