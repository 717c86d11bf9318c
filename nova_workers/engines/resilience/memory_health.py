"""Breakers and cool-downs of one process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nova_workers.engines.resilience.health import (
    FAILURES_LIFE,
    MOST_CONVERSATIONS,
    STRIKES_LIFE,
    Cooldown,
    CooldownReason,
    Failure,
    Health,
)
from nova_workers.engines.resilience.policy import Policy

_TICK_S = 0.001
"""A failure after an answer is later than it, also within the clock's resolution."""


@dataclass(slots=True)
class _Waiting:
    """A conversation that waits for the probe, and when it is expected back. The lowest rank goes first."""

    conversation: str
    rank: float
    until_s: float


@dataclass(slots=True)
class _Opening:
    """The state of a breaker while it is open. The fields are those of ``admit.lua``."""

    open_until_s: float
    retry_until_s: float
    forget_at_s: float
    fresh_probes: int = 0
    failed_probes: int = 0
    probe: _Waiting | None = None
    next: _Waiting | None = None


@dataclass(slots=True)
class _Breaker:
    answered_at_s: float
    failed: dict[str, float] = field(default_factory=dict[str, float])
    """Conversations with the time of their failure, the oldest first."""
    opening: _Opening | None = None


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

    async def admit(self, model: str, profiles: Sequence[str], conversation: str) -> Health:
        """See `HealthStore.admit`."""
        now_s = self._clock()
        cooling = {profile: rest for profile in profiles if (rest := self._cooldown(profile, model, now_s))}
        breaker = self._breakers.get(model)
        if breaker is None:
            return Health(cooling=cooling)
        failures = self._failures(breaker, now_s)
        opening = _current(breaker, now_s)
        if opening is None:
            return Health(0.0, failures, cooling)
        failed_at_s = breaker.failed.get(conversation, 0.0)
        # One that fails by itself comes last.
        rank = now_s if 0 < failed_at_s <= breaker.answered_at_s else failed_at_s
        wait_s = _wait_s(opening, conversation, rank, now_s, self._policy.probe_poll_s)
        if wait_s > 0:
            reserved = opening.next
            if reserved is None or not _goes_first(reserved, conversation, now_s) or rank < reserved.rank:
                opening.next = _Waiting(conversation, rank, now_s + wait_s + self._policy.probe_hold_s)
            return Health(wait_s, failures, cooling, "open")
        if len(cooling) == len(profiles):
            return Health(0.0, failures, cooling, "open")
        opening.probe = _Waiting(conversation, rank, now_s + self._policy.breaker_open_cap_s)
        if opening.next is not None and opening.next.conversation == conversation:
            opening.next = None
        return Health(0.0, failures, cooling, "probe")

    async def fail(self, model: str, failure: Failure) -> bool:
        """See `HealthStore.fail`."""
        now_s, policy, conversation = self._clock(), self._policy, failure.conversation
        breaker = self._breakers.setdefault(model, _Breaker(answered_at_s=0.0))
        if failure.answered_ago_s is not None:
            breaker.answered_at_s = max(breaker.answered_at_s, now_s - failure.answered_ago_s)
        self._forget(breaker, now_s)
        failed_at_s = breaker.failed.get(conversation)
        counted = failed_at_s is None or failed_at_s > breaker.answered_at_s
        if counted:
            breaker.failed.pop(conversation, None)
            breaker.failed[conversation] = max(now_s, breaker.answered_at_s + _TICK_S)
            if len(breaker.failed) > MOST_CONVERSATIONS:
                del breaker.failed[next(iter(breaker.failed))]
        opening = _current(breaker, now_s)
        if opening is None:
            if counted and self._failures(breaker, now_s) >= policy.breaker_failures:
                until_s = now_s + policy.open_time(0)
                breaker.opening = _Opening(until_s, until_s, until_s + self._life_s)
        elif opening.probe is not None and opening.probe.conversation == conversation:
            opening.probe = None
            if failed_at_s is None:
                opening.fresh_probes += 1
                opening.open_until_s = now_s + policy.open_time(opening.fresh_probes)
                opening.retry_until_s = max(opening.retry_until_s, opening.open_until_s)
            else:
                opening.failed_probes += 1
                opening.retry_until_s = now_s + policy.open_time(opening.failed_probes)
            opening.forget_at_s = max(opening.open_until_s, opening.retry_until_s) + self._life_s
        return _current(breaker, now_s) is not None

    async def recover(self, model: str, conversation: str) -> None:
        """See `HealthStore.recover`."""
        breaker = self._breakers.get(model)
        if breaker is None:
            return
        breaker.failed.pop(conversation, None)
        breaker.opening = None
        breaker.answered_at_s = self._clock()
        if not breaker.failed:
            del self._breakers[model]

    async def release(self, model: str, conversation: str) -> None:
        """See `HealthStore.release`."""
        breaker = self._breakers.get(model)
        opening = None if breaker is None else breaker.opening
        if opening is not None and opening.probe is not None and opening.probe.conversation == conversation:
            opening.probe = None

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
        now_s = self._clock()
        rest = self._rests.get((profile, model))
        if rest is not None and now_s < rest.until_s:
            rest_s = rest.until_s - now_s
            if retry_after_s is None or retry_after_s <= rest_s:
                return rest_s
            strikes, rest_s = rest.strikes, retry_after_s
        else:
            strikes = 1 + (rest.strikes if rest is not None and now_s < rest.forgotten_s else 0)
            rest_s = self._policy.cooldown(reason, strikes) if retry_after_s is None else retry_after_s
        self._rests[profile, model] = _Rest(reason, strikes, now_s + rest_s, now_s + rest_s * (1 + STRIKES_LIFE))
        return rest_s

    @property
    def _life_s(self) -> float:
        return self._policy.breaker_open_cap_s * FAILURES_LIFE

    def _failures(self, breaker: _Breaker, now_s: float) -> int:
        counted_from_s = max(breaker.answered_at_s, now_s - self._life_s)
        return sum(failed_at_s > counted_from_s for failed_at_s in breaker.failed.values())

    def _forget(self, breaker: _Breaker, now_s: float) -> None:
        before_s = now_s - self._policy.conversation_memory_s
        for conversation in [name for name, failed_at_s in breaker.failed.items() if failed_at_s <= before_s]:
            del breaker.failed[conversation]

    def _cooldown(self, profile: str, model: str, now_s: float) -> Cooldown | None:
        for scope in (None, model):
            rest = self._rests.get((profile, scope))
            if rest is not None and now_s < rest.until_s:
                return Cooldown(rest.reason, rest.until_s)
        return None


def _current(breaker: _Breaker, now_s: float) -> _Opening | None:
    opening = breaker.opening
    return opening if opening is not None and now_s < opening.forget_at_s else None


def _wait_s(opening: _Opening, conversation: str, rank: float, now_s: float, poll_s: float) -> float:
    """Return how long a conversation waits; 0: it has the right to the probe."""
    gate_s = opening.open_until_s if rank == 0 else opening.retry_until_s
    if now_s < gate_s:
        return gate_s - now_s
    probe, reserved = opening.probe, opening.next
    # One that has not failed does not wait for one that has.
    if probe is not None and now_s < probe.until_s and not (rank == 0 and probe.rank > 0):
        return min(poll_s, probe.until_s - now_s)
    if reserved is not None and reserved.rank < rank and _goes_first(reserved, conversation, now_s):
        return min(poll_s, reserved.until_s - now_s)
    return 0.0


def _goes_first(reserved: _Waiting, conversation: str, now_s: float) -> bool:
    """Return whether another conversation waits for the probe."""
    return reserved.conversation != conversation and now_s < reserved.until_s
