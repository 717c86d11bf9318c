"""Decides on a due trigger: which occurrences fire, which are skipped and why, and when it is due next.

Pure: the facts about a trigger come in, the rows to write go out. Nothing holds before the caller commits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from nova_workers.base.errors import InvalidInput
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.triggers import SkipReason
from nova_workers.domain.triggers.rules.occurrences import (
    COUNTED,
    GATE_LEASE_S,
    HELD_S,
    ON_TIME_S,
    DueOccurrences,
    OccurrenceRule,
    Occurrences,
    window_s,
)
from nova_workers.domain.triggers.sql.due import DueTrigger, QueuedOccurrence
from nova_workers.domain.triggers.sql.firing import Move, NewFiring
from nova_workers.domain.triggers.sql.outcomes import Spent

Refusal = tuple[SkipReason, str]

MAX_QUEUED = 1_000
"""Occurrences of one trigger that may be queued behind the runs of earlier ones."""


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """A gate's answer. `seen` is stored if the trigger fires."""

    opens: bool
    why: str
    seen: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The facts about a due trigger beside its row.

    Attributes:
        thread_lives: Whether its fixed thread exists; true if it has none.
        spent: Number and cost of its runs of the day; None if it has no limit.
        gate: Its gate's answer; None if it was not evaluated yet.
        refused: Why its orchestration cannot be started; None if it can, or it starts runs.
    """

    thread_lives: bool = True
    spent: Spent | None = None
    gate: GateAnswer | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to write.

    Attributes:
        asks_gate: Its gate must be evaluated first.
        cancels: Open runs that the new one replaces.
    """

    move: Move
    firings: tuple[NewFiring, ...] = ()
    cancels: tuple[str, ...] = ()
    asks_gate: bool = False


@dataclass(frozen=True, slots=True)
class QueuedVerdict:
    """What to write of a queued occurrence.

    Attributes:
        firing: Its row; None if it stays queued.
        skips_all: Why it and all queued after it are skipped.
    """

    firing: NewFiring | None = None
    skips_all: Refusal | None = None


@dataclass(slots=True)
class _Outcomes:
    """The outcomes of occurrences, decided in order: each sees the runs of those before it."""

    trigger: DueTrigger
    known: Known
    catching_up: bool = False
    firings: list[NewFiring] = field(default_factory=list[NewFiring])
    cancels: list[str] = field(default_factory=list[str])
    open_runs: list[str] = field(default_factory=list[str])
    queued: int = 0
    begun: int = 0

    def skip(self, occurrence: datetime, reason: SkipReason, detail: str) -> None:
        self.firings.append(
            NewFiring(new_id("fir"), self.trigger.id, occurrence, "skipped", skip_reason=reason, detail=detail)
        )

    def fire(self, occurrence: datetime) -> None:
        if self.trigger.overlap == "cancel_other":
            self.cancels += self.open_runs
            self.open_runs.clear()
        firing = _fired(self.trigger, new_id("fir"), occurrence)
        self.firings.append(firing)
        self.open_runs.append(str(firing.run_id))
        self.begun += 1

    def queue(self, occurrence: datetime) -> None:
        self.firings.append(NewFiring(new_id("fir"), self.trigger.id, occurrence, "queued"))
        self.queued += 1

    def waits(self) -> bool:
        """Return whether the next occurrence is queued behind the open runs and queued occurrences of earlier ones."""
        if not self.open_runs and not self.queued:
            return False
        if self.catching_up or self.trigger.overlap == "queue":
            return True
        return self.trigger.overlap == "cancel_other" and self.queued > 0


def _fired(trigger: DueTrigger, firing_id: str, occurrence: datetime) -> NewFiring:
    thread_id = trigger.thread_id
    starts_run = trigger.action == "run"
    return NewFiring(
        firing_id,
        trigger.id,
        occurrence,
        "fired",
        run_id=new_id("run"),
        thread_id=thread_id or new_id("thr") if starts_run else None,
        new_thread=starts_run and thread_id is None,
    )


def _rule_of(trigger: DueTrigger) -> OccurrenceRule:
    """Return the rule of a trigger's occurrences."""
    return OccurrenceRule(
        trigger_id=trigger.id,
        kind=trigger.kind,
        schedule=trigger.schedule,
        timezone=trigger.timezone,
        starts_at=trigger.starts_at,
        ends_at=trigger.ends_at,
        made_at=trigger.created_at,
        jitter_s=trigger.jitter_s,
        catchup_s=trigger.catchup_s,
        catchup=trigger.catchup,
    )


def day_began(trigger: DueTrigger) -> datetime:
    """Return when the tenant's day began."""
    try:
        zone = ZoneInfo(trigger.tenant_timezone)
    except (KeyError, ValueError, OSError):
        zone = ZoneInfo("UTC")
    here = trigger.now.astimezone(zone)
    # Where clocks go back across midnight, the first of the two: the repeated hour does not begin another day.
    return here.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)


def verdict_on(trigger: DueTrigger, known: Known, occurrences: Occurrences) -> Verdict:
    """Decide on a due trigger."""
    occurrence, now = trigger.next_slot_at, trigger.now
    if occurrence is None:
        # It has no next occurrence, whatever its `next_fire_at` is.
        return Verdict(Move(trigger.id, None, None))
    gone = _gone(trigger, known)
    if gone is not None:
        return _paused(trigger, occurrence, *gone)
    if trigger.held:
        return Verdict(Move(trigger.id, occurrence, now + timedelta(seconds=HELD_S)))
    rule = _rule_of(trigger)
    try:
        due = occurrences.due(rule, occurrence, now)
    except InvalidInput as error:
        return _paused(trigger, occurrence, "schedule", error.message)
    if due.firing and trigger.gate is not None and known.gate is None:
        return Verdict(Move(trigger.id, occurrence, now + timedelta(seconds=GATE_LEASE_S)), asks_gate=True)
    return _decided(
        trigger, known, due, occurrences.fire_at(rule, due.next_occurrence), _catching_up(rule, due, now, occurrences)
    )


def _catching_up(rule: OccurrenceRule, due: DueOccurrences, now: datetime, occurrences: Occurrences) -> bool:
    """Return whether these are late and each is to fire: then none is skipped because of another's run."""
    if rule.catchup != "each" or not due.firing:
        return False
    following = occurrences.fire_at(rule, due.next_occurrence)
    if len(due.firing) > 1 or (following is not None and following <= now):
        return True
    fires_at = occurrences.fire_at(rule, max(due.firing))
    return fires_at is not None and fires_at < now - timedelta(seconds=ON_TIME_S)


def verdict_on_queued(trigger: DueTrigger, known: Known, occurrence: QueuedOccurrence) -> QueuedVerdict:
    """Decide on the oldest queued occurrence of a trigger."""
    if trigger.stopped:
        return QueuedVerdict(
            skips_all=("stopped", "The trigger was paused or deleted while the occurrence was queued.")
        )
    gone = _gone(trigger, known)
    if gone is not None:
        return QueuedVerdict(skips_all=gone)
    if trigger.open_runs or trigger.held:
        return QueuedVerdict()
    refusal = over_limit(trigger, known.spent) or _not_afforded(trigger, known) or _not_startable(known)
    if refusal is None:
        return QueuedVerdict(_fired(trigger, occurrence.id, occurrence.scheduled_for))
    reason, detail = refusal
    return QueuedVerdict(
        NewFiring(occurrence.id, trigger.id, occurrence.scheduled_for, "skipped", skip_reason=reason, detail=detail)
    )


def over_limit(trigger: DueTrigger, spent: Spent | None, begun: int = 0) -> Refusal | None:
    """Return which daily limit a trigger has reached after `begun` more runs, with a message."""
    if spent is None:
        return None
    runs, cost = trigger.max_runs_per_day, trigger.max_cost_usd_per_day
    if runs is not None and spent.runs + begun >= runs:
        return "max_runs_per_day", f"It has had its {runs} runs of the day."
    if cost is not None and spent.cost_usd >= cost:
        return "max_cost_usd_per_day", f"Its runs of the day cost ${spent.cost_usd:.4f} of ${cost.normalize():f}."
    return None


def _decided(
    trigger: DueTrigger, known: Known, due: DueOccurrences, next_fire_at: datetime | None, catching_up: bool
) -> Verdict:
    outcomes = _Outcomes(
        trigger, known, catching_up, open_runs=list(trigger.open_runs), queued=trigger.queued_occurrences
    )
    if due.missed is not None:
        first, count = due.missed
        outcomes.skip(
            first, "missed", f"{_occurrences(count)} came more than {window_s(trigger.catchup_s)} s too late."
        )
    if due.passed_over is not None:
        first, count = due.passed_over
        outcomes.skip(first, "caught_up", f"{_occurrences(count)} came late; a later one fired in {_place(count)}.")
    for occurrence in due.firing:
        refusal = _refusal(outcomes)
        if refusal is not None:
            outcomes.skip(occurrence, *refusal)
        elif outcomes.waits():
            outcomes.queue(occurrence)
        else:
            outcomes.fire(occurrence)
    accepted = outcomes.begun or outcomes.queued > trigger.queued_occurrences
    seen = known.gate.seen if known.gate is not None and accepted else None
    move = Move(trigger.id, due.next_occurrence, next_fire_at, over=due.next_occurrence is None, gate_seen=seen)
    # A run of an earlier occurrence of this pass may be canceled too: its row is written by then.
    return Verdict(move, tuple(outcomes.firings), tuple(outcomes.cancels))


def _refusal(outcomes: _Outcomes) -> Refusal | None:
    trigger, gate = outcomes.trigger, outcomes.known.gate
    if gate is not None and not gate.opens:
        return "gate", gate.why
    if outcomes.queued >= MAX_QUEUED:
        return "overlap", f"{MAX_QUEUED} earlier occurrences are queued, the maximum."
    if trigger.overlap == "skip" and not outcomes.waits():
        if outcomes.open_runs:
            return "overlap", f"Run {outcomes.open_runs[0]} of an earlier occurrence is still open."
        if outcomes.queued:
            return "overlap", f"{outcomes.queued} earlier occurrences are still queued."
    limit = over_limit(trigger, outcomes.known.spent, outcomes.begun + outcomes.queued)
    return limit or _not_afforded(trigger, outcomes.known) or _not_startable(outcomes.known)


def _not_afforded(trigger: DueTrigger, known: Known) -> Refusal | None:
    """Refuse what the rest of the day refused before. A person may try it again, since the agent may cost less now."""
    spent, cost = known.spent, trigger.max_cost_usd_per_day
    if spent is None or cost is None or not spent.refused:
        return None
    return (
        "max_cost_usd_per_day",
        f"Its runs of the day cost ${spent.cost_usd:.4f} of ${cost.normalize():f}, and the rest did not afford the "
        "call of the last one.",
    )


def _not_startable(known: Known) -> Refusal | None:
    return None if known.refused is None else ("orchestration", known.refused)


def _gone(trigger: DueTrigger, known: Known) -> Refusal | None:
    if not trigger.agent_lives:
        return "agent_deleted", f"Agent {trigger.agent_id!r} was deleted."
    if not known.thread_lives:
        return "thread_deleted", f"Thread {trigger.thread_id!r} was deleted. Give another one, or none."
    return None


def _paused(trigger: DueTrigger, occurrence: datetime, reason: SkipReason, detail: str) -> Verdict:
    row = NewFiring(new_id("fir"), trigger.id, occurrence, "skipped", skip_reason=reason, detail=detail)
    return Verdict(Move(trigger.id, None, None, paused_reason=detail), (row,))


def _occurrences(count: int) -> str:
    if count == 1:
        return "It"
    return f"{'At least ' if count >= COUNTED else ''}{count} occurrences from here on"


def _place(count: int) -> str:
    return "its place" if count == 1 else "their place"


def limited(triggers: Sequence[DueTrigger]) -> list[DueTrigger]:
    """Return the triggers that have a daily limit."""
    return [each for each in triggers if each.max_runs_per_day is not None or each.max_cost_usd_per_day is not None]
