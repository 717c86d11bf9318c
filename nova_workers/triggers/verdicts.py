"""What comes of a due trigger: which of its slots fire, which are skipped and why, and where it stands then.

Pure: what is known of a trigger comes in, the rows to write go out. Nothing here is true before it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from nova_workers.contracts.http.triggers import SkipReason
from nova_workers.errors import InvalidInput
from nova_workers.ids import new_id
from nova_workers.ledger.triggers.firing import DueTrigger, Move, NewFiring, QueuedSlot
from nova_workers.ledger.triggers.outcomes import Spent
from nova_workers.triggers.slots import COUNTED, GATE_LEASE_S, HELD_S, ON_TIME_S, DueSlots, SlotRule, Slots, window_s

__all__ = ["GateAnswer", "Known", "Verdict", "day_began", "limited", "over_limit", "verdict_on", "verdict_on_queued"]

Refusal = tuple[SkipReason, str]

MAX_QUEUED = 1_000
"""Slots of one trigger that wait for the runs of earlier ones."""


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """What a gate said. `seen` is kept if the trigger fires."""

    opens: bool
    why: str
    seen: str | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a due trigger beside its row.

    Attributes:
        thread_lives: Whether its fixed thread is there; true where it has none.
        spent: What its runs of the day come to; None where it has no limit.
        gate: What its gate said; None where nobody looked yet.
    """

    thread_lives: bool = True
    spent: Spent | None = None
    gate: GateAnswer | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be written.

    Attributes:
        asks_gate: Nothing comes of it before its gate was looked at.
        cancels: Open runs that make room for the one that fires.
    """

    move: Move
    firings: tuple[NewFiring, ...] = ()
    cancels: tuple[str, ...] = ()
    asks_gate: bool = False


@dataclass(frozen=True, slots=True)
class QueuedVerdict:
    """What comes of a queued slot.

    Attributes:
        firing: What is to be written of it; None where it goes on waiting.
        skips_all: Why it and all slots behind it are skipped.
    """

    firing: NewFiring | None = None
    skips_all: Refusal | None = None


@dataclass(slots=True)
class _Ledger:
    """What comes of slots, one after the other: each sees the runs of those before it."""

    trigger: DueTrigger
    known: Known
    catching_up: bool = False
    firings: list[NewFiring] = field(default_factory=list[NewFiring])
    cancels: list[str] = field(default_factory=list[str])
    open_runs: list[str] = field(default_factory=list[str])
    queued: int = 0
    begun: int = 0

    def skip(self, slot: datetime, reason: SkipReason, detail: str) -> None:
        self.firings.append(
            NewFiring(new_id("fir"), self.trigger.id, slot, "skipped", skip_reason=reason, detail=detail)
        )

    def fire(self, slot: datetime) -> None:
        if self.trigger.overlap == "cancel_other":
            self.cancels += self.open_runs
            self.open_runs.clear()
        firing = _fired(self.trigger, new_id("fir"), slot)
        self.firings.append(firing)
        self.open_runs.append(str(firing.run_id))
        self.begun += 1

    def queue(self, slot: datetime) -> None:
        self.firings.append(NewFiring(new_id("fir"), self.trigger.id, slot, "queued"))
        self.queued += 1

    def waits(self) -> bool:
        """Whether the next slot goes behind the open runs and queued slots of earlier ones."""
        if not self.open_runs and not self.queued:
            return False
        if self.catching_up or self.trigger.overlap == "queue":
            return True
        return self.trigger.overlap == "cancel_other" and self.queued > 0


def _fired(trigger: DueTrigger, firing_id: str, slot: datetime) -> NewFiring:
    thread_id = trigger.thread_id
    return NewFiring(
        firing_id,
        trigger.id,
        slot,
        "fired",
        run_id=new_id("run"),
        thread_id=thread_id or new_id("thr"),
        new_thread=thread_id is None,
    )


def _rule_of(trigger: DueTrigger) -> SlotRule:
    """Return what says when a trigger fires."""
    return SlotRule(
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
    # The first midnight of two, where clocks go back across it: the hour that comes again begins no new day.
    return here.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)


def verdict_on(trigger: DueTrigger, known: Known, slots: Slots) -> Verdict:
    """Return what comes of a trigger that is due."""
    slot, now = trigger.next_slot_at, trigger.now
    if slot is None:
        # Nothing is due of it, whatever its time says.
        return Verdict(Move(trigger.id, None, None))
    gone = _gone(trigger, known)
    if gone is not None:
        return _paused(trigger, slot, *gone)
    if trigger.held:
        return Verdict(Move(trigger.id, slot, now + timedelta(seconds=HELD_S)))
    rule = _rule_of(trigger)
    try:
        due = slots.due(rule, slot, now)
    except InvalidInput as error:
        return _paused(trigger, slot, "schedule", error.message)
    if due.firing and trigger.gate is not None and known.gate is None:
        return Verdict(Move(trigger.id, slot, now + timedelta(seconds=GATE_LEASE_S)), asks_gate=True)
    return _judged(trigger, known, due, slots.fire_at(rule, due.next_slot), _catching_up(rule, due, now, slots))


def _catching_up(rule: SlotRule, due: DueSlots, now: datetime, slots: Slots) -> bool:
    """Whether these slots came late and each is to fire: then none of them is skipped for the run of another."""
    if rule.catchup != "each" or not due.firing:
        return False
    following = slots.fire_at(rule, due.next_slot)
    if len(due.firing) > 1 or (following is not None and following <= now):
        return True
    fires_at = slots.fire_at(rule, max(due.firing))
    return fires_at is not None and fires_at < now - timedelta(seconds=ON_TIME_S)


def verdict_on_queued(trigger: DueTrigger, known: Known, slot: QueuedSlot) -> QueuedVerdict:
    """Return what comes of the oldest queued slot of a trigger."""
    if trigger.stopped:
        return QueuedVerdict(skips_all=("stopped", "The trigger was paused or deleted while the slot waited."))
    gone = _gone(trigger, known)
    if gone is not None:
        return QueuedVerdict(skips_all=gone)
    if trigger.open_runs or trigger.held:
        return QueuedVerdict()
    refusal = over_limit(trigger, known.spent)
    if refusal is None:
        return QueuedVerdict(_fired(trigger, slot.id, slot.scheduled_for))
    reason, detail = refusal
    return QueuedVerdict(
        NewFiring(slot.id, trigger.id, slot.scheduled_for, "skipped", skip_reason=reason, detail=detail)
    )


def over_limit(trigger: DueTrigger, spent: Spent | None, begun: int = 0) -> Refusal | None:
    """Return which limit of the day a trigger has reached, `begun` runs later, and in which words."""
    if spent is None:
        return None
    runs, cost = trigger.max_runs_per_day, trigger.max_cost_usd_per_day
    if runs is not None and spent.runs + begun >= runs:
        return "max_runs_per_day", f"It had its {runs} runs of the day."
    if cost is not None and spent.cost_usd >= cost:
        return "max_cost_usd_per_day", f"Its runs of the day cost ${spent.cost_usd:.4f} of ${cost.normalize():f}."
    return None


def _judged(
    trigger: DueTrigger, known: Known, due: DueSlots, next_fire_at: datetime | None, catching_up: bool
) -> Verdict:
    page = _Ledger(trigger, known, catching_up, open_runs=list(trigger.open_runs), queued=trigger.queued_slots)
    if due.missed is not None:
        first, count = due.missed
        page.skip(first, "missed", f"{_slots(count)} came more than {window_s(trigger.catchup_s)} s too late.")
    if due.passed_over is not None:
        first, count = due.passed_over
        page.skip(first, "caught_up", f"{_slots(count)} came late; a later one fired in {_place(count)}.")
    for slot in due.firing:
        refusal = _refusal(page)
        if refusal is not None:
            page.skip(slot, *refusal)
        elif page.waits():
            page.queue(slot)
        else:
            page.fire(slot)
    accepted = page.begun or page.queued > trigger.queued_slots
    seen = known.gate.seen if known.gate is not None and accepted else None
    move = Move(trigger.id, due.next_slot, next_fire_at, over=due.next_slot is None, gate_seen=seen)
    # What was begun for an earlier slot of this very pass may be canceled too: its row is written by then.
    return Verdict(move, tuple(page.firings), tuple(page.cancels))


def _refusal(page: _Ledger) -> Refusal | None:
    trigger, gate = page.trigger, page.known.gate
    if gate is not None and not gate.opens:
        return "gate", gate.why
    if page.queued >= MAX_QUEUED:
        return "overlap", f"{MAX_QUEUED} earlier slots are queued, which is the most."
    if trigger.overlap == "skip" and not page.waits():
        if page.open_runs:
            return "overlap", f"Run {page.open_runs[0]} of an earlier slot is still open."
        if page.queued:
            return "overlap", f"{page.queued} earlier slots are still queued."
    return over_limit(trigger, page.known.spent, page.begun + page.queued)


def _gone(trigger: DueTrigger, known: Known) -> Refusal | None:
    if not trigger.agent_lives:
        return "agent_deleted", f"Agent {trigger.agent_id!r} was deleted."
    if not known.thread_lives:
        return "thread_deleted", f"Thread {trigger.thread_id!r} was deleted. Give another one, or none."
    return None


def _paused(trigger: DueTrigger, slot: datetime, reason: SkipReason, detail: str) -> Verdict:
    row = NewFiring(new_id("fir"), trigger.id, slot, "skipped", skip_reason=reason, detail=detail)
    return Verdict(Move(trigger.id, None, None, paused_reason=detail), (row,))


def _slots(count: int) -> str:
    if count == 1:
        return "It"
    return f"{'At least ' if count >= COUNTED else ''}{count} slots from here on"


def _place(count: int) -> str:
    return "its place" if count == 1 else "their place"


def limited(triggers: Sequence[DueTrigger]) -> list[DueTrigger]:
    """Return those that have a limit of the day."""
    return [each for each in triggers if each.max_runs_per_day is not None or each.max_cost_usd_per_day is not None]
