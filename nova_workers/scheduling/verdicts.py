"""What comes of a due trigger: which of its slots fire, which are skipped and why, and where it stands then.

Pure: what is known of a trigger comes in, the rows to write go out. Nothing here is true before it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from nova_workers.contracts.triggers import SkipReason
from nova_workers.errors import InvalidInput
from nova_workers.ids import new_id
from nova_workers.ledger.trigger_firing import DueTrigger, Move, NewFiring
from nova_workers.ledger.trigger_outcomes import Spent
from nova_workers.workspace.slots import COUNTED, GATE_LEASE_S, HELD_S, DueSlots, SlotRule, Slots, window_s

__all__ = ["GateAnswer", "Known", "Verdict", "day_began", "limited", "over_limit", "verdict_on"]

Refusal = tuple[SkipReason, str]


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


@dataclass(slots=True)
class _Ledger:
    """What comes of slots, one after the other: each sees the runs of those before it."""

    trigger: DueTrigger
    known: Known
    firings: list[NewFiring] = field(default_factory=list[NewFiring])
    cancels: list[str] = field(default_factory=list[str])
    open_runs: list[str] = field(default_factory=list[str])
    begun: int = 0

    def skip(self, slot: datetime, reason: SkipReason, detail: str) -> None:
        self.firings.append(
            NewFiring(new_id("fir"), self.trigger.id, slot, "skipped", skip_reason=reason, detail=detail)
        )

    def fire(self, slot: datetime) -> None:
        if self.trigger.overlap == "cancel_other":
            self.cancels += self.open_runs
            self.open_runs.clear()
        thread_id, run_id = self.trigger.thread_id, new_id("run")
        self.firings.append(
            NewFiring(
                new_id("fir"),
                self.trigger.id,
                slot,
                "fired",
                run_id=run_id,
                thread_id=thread_id or new_id("thr"),
                new_thread=thread_id is None,
            )
        )
        self.open_runs.append(run_id)
        self.begun += 1


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
    return _judged(trigger, known, due, slots.fire_at(rule, due.next_slot))


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


def _judged(trigger: DueTrigger, known: Known, due: DueSlots, next_fire_at: datetime | None) -> Verdict:
    page = _Ledger(trigger, known, open_runs=list(trigger.open_runs))
    if due.missed is not None:
        first, count = due.missed
        page.skip(first, "missed", f"{_slots(count)} came more than {window_s(trigger.catchup_s)} s too late.")
    if due.passed_over is not None:
        first, count = due.passed_over
        page.skip(first, "caught_up", f"{_slots(count)} came late; a later one fired in {_place(count)}.")
    for slot in due.firing:
        refusal = _refusal(page)
        if refusal is None:
            page.fire(slot)
        else:
            page.skip(slot, *refusal)
    seen = known.gate.seen if known.gate is not None and page.begun else None
    move = Move(trigger.id, due.next_slot, next_fire_at, over=due.next_slot is None, gate_seen=seen)
    # What was begun for an earlier slot of this very pass may be canceled too: its row is written by then.
    return Verdict(move, tuple(page.firings), tuple(page.cancels))


def _refusal(page: _Ledger) -> Refusal | None:
    trigger, gate = page.trigger, page.known.gate
    if gate is not None and not gate.opens:
        return "gate", gate.why
    if trigger.overlap == "skip" and page.open_runs:
        return "overlap", f"Run {page.open_runs[0]} of an earlier slot is still open."
    return over_limit(trigger, page.known.spent, page.begun)


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
