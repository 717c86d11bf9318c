"""One attempt at a run: what travels together from its claim to its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from nova_workers.base.clock import Clock
from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.runs import Claim
from nova_workers.domain.runs.rules.turns.budgets import BudgetRest
from nova_workers.domain.runs.rules.turns.journal import TurnJournal
from nova_workers.domain.runs.rules.turns.live import LiveEvents
from nova_workers.domain.threads.rules.lease import HeldRun


class TimeLeft:
    """The rest of a run's time: of its agent's limit, and of its orchestration's budget."""

    def __init__(self, claim: Claim, clock: Clock) -> None:
        limit_s = claim.agent.timeout_s
        self._clock = clock
        bounds_s = [] if limit_s is None else [limit_s - claim.elapsed_s]
        if claim.place is not None and claim.place.deadline_at is not None:
            bounds_s.append((claim.place.deadline_at - clock.now()).total_seconds())
        self._deadline_s = clock.monotonic_s() + min(bounds_s) if bounds_s else None

    @property
    def is_expired(self) -> bool:
        """Whether there is none."""
        return self._deadline_s is not None and self._clock.monotonic_s() >= self._deadline_s

    def seconds(self) -> float | None:
        """Return the seconds left; None without a limit.

        Raises:
            EngineFailure: The time limit has expired.
        """
        if self.is_expired:
            raise EngineFailure("The run took longer than its time limit.", kind="timeout", retryable=True)
        return None if self._deadline_s is None else self._deadline_s - self._clock.monotonic_s()


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt at a run, from its claim to its end.

    The claim is `run`'s alone, and is read where it is used: compaction replaces it, and a copy would be stale then.
    """

    run: HeldRun
    journal: TurnJournal
    """Writes steps."""
    events: LiveEvents
    """Emits what followers see."""
    time_left: TimeLeft
    started_s: float
    """When it began, on the monotonic clock."""
    rest: BudgetRest = field(default_factory=BudgetRest)
    """What the budgets that the run shares leave for it, from when they were checked."""

    @property
    def claim(self) -> Claim:
        """What the run is, and the fence of every write."""
        return self.run.claim

    @property
    def abort(self) -> AbortSignal:
        """Ends the turn, and each wait of it."""
        return self.run.abort
