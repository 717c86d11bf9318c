"""The health of a model and of its keys, and the interface of its store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

CooldownReason = Literal["auth", "rate_limit"]
BreakerState = Literal["closed", "open", "probe"]
"""``probe``: the breaker is open, and the caller is the one call that it admits."""

FAILURES_LIFE = 3.0
"""Failures further apart than this many times the longest open time are not consecutive. A breaker without a probe for
so long closes."""
MOST_CONVERSATIONS = 1_000
"""Limit of the conversations that are remembered for one model."""
STRIKES_LIFE = 2.0
"""A key that works for this many times its last cool-down starts again with the shortest one."""


@dataclass(frozen=True, slots=True)
class Cooldown:
    """The cool-down of a profile."""

    reason: CooldownReason
    until_s: float
    """The time by the monotonic clock of this process."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that a model did not answer.

    Attributes:
        conversation: The opaque id of its conversation.
        error: What the provider answered, for operators.
        answered_ago_s: How long ago the model answered another call of this process; None if it never did.
    """

    conversation: str
    error: str = ""
    answered_ago_s: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a model may be called now, and with which profiles.

    Attributes:
        wait_s: 0: it may be called. Otherwise its breaker is open: ask again after this time.
        failures: Conversations that failed since the model last answered. If there are any, a caller that gets a
            response must report it.
        cooling: The profiles in a cool-down.
        breaker: The state of the breaker. The caller that is the ``probe`` must report the outcome with
            `HealthStore.fail`, `recover` or `release`.
    """

    wait_s: float = 0.0
    failures: int = 0
    cooling: Mapping[str, Cooldown] = field(default_factory=dict[str, Cooldown])
    breaker: BreakerState = "closed"


class HealthStore(Protocol):
    """Stores breakers and cool-downs: `RedisHealth` for all workers, `MemoryHealth` for one process.

    A breaker counts the conversations that failed since the model last answered any call. One conversation is not
    evidence against the model: its own content may be what the provider cannot answer. With
    `Policy.breaker_failures` different ones the breaker opens and admits no calls. After a time it admits one call as
    a probe, whose outcome decides for all.

    The probe belongs to the waiting conversation that has not failed yet, else to the one whose last failure is the
    oldest. Conversations that have not failed wait for the first open time, which doubles only if the probe of another
    such conversation fails. Those that have failed wait for a time of their own, which doubles with each failed probe
    of theirs. So a conversation that always fails delays itself only.

    Any response that begins is a success, even to an earlier request: it closes the breaker. A conversation that failed
    before the success of another one is known to fail by itself: for `Policy.conversation_memory_s` its failures are
    not counted, unless it gets a response.
    """

    async def admit(self, model: str, profiles: Sequence[str], conversation: str) -> Health:
        """Ask to call a model. With ``wait_s`` 0 the caller may call, and is the probe if one is due.

        A probe that never reports (its worker crashed) counts as lost after the longest open time.
        """
        ...

    async def fail(self, model: str, failure: Failure) -> bool:
        """Count the failure of a conversation, whose further failures change nothing.

        Returns:
            Whether the breaker is open.
        """
        ...

    async def recover(self, model: str, conversation: str) -> None:
        """Close the breaker, because the model answered the conversation."""
        ...

    async def release(self, model: str, conversation: str) -> None:
        """Allow another call to be the probe, because this one was stopped without a verdict on the model."""
        ...

    async def cool(
        self,
        profile: str,
        model: str | None,
        reason: CooldownReason,
        retry_after_s: float | None = None,
        *,
        error: str = "",
    ) -> float:
        """Start a cool-down of a profile, for one model or for all (None).

        If many calls fail at the same time, the first sets the duration, and the others do not double it.

        Args:
            model: The model; None for all.
            reason: The reason, which determines the duration.
            retry_after_s: The provider's requested wait, which takes precedence over our own duration.
            error: What the provider answered, for operators.

        Returns:
            The remaining cool-down in seconds.
        """
        ...
