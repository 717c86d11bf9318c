"""Which slots of a trigger are due, and what becomes of those that nobody fired in time. Pure: time comes in.

A slot is a moment of the schedule. It fires at the slot plus its jitter, which follows from the trigger and the slot
alone, so that any process computes the same. Slots fire in their order: none is due before the one before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise

from nova_workers.contracts.http.triggers import CatchUp, TriggerKind
from nova_workers.errors import InvalidInput
from nova_workers.triggers.schedules import Schedule, next_firings, parse_schedule

__all__ = [
    "COUNTED",
    "GATE_LEASE_S",
    "HELD_S",
    "ON_TIME_S",
    "DueSlots",
    "SlotRule",
    "Slots",
    "check_jitter",
    "jitter_of",
    "window_s",
]

HELD_S = 30
"""While an agent is paused its triggers are looked at so often. What is due then waits, as if nobody had come."""
GATE_LEASE_S = 120
"""Others leave a trigger alone for so long while its gate is looked at."""
_QUEUES_S = 30
"""A tick, its wait in line behind others, and the batches before this one's."""
ON_TIME_S = HELD_S + GATE_LEASE_S + _QUEUES_S
"""A slot that fires up to so much later is on time: that is how late a fleet may be in which nothing was away."""

COUNTED = 100
"""Slots that are counted one by one; of more it is said that there are at least so many."""
_EACH = 100
"""Slots of one trigger that a tick takes, where each fires. The next tick goes on."""
_CACHED = 8_192
_LOOKED_AT = 50
_JUST_BEFORE = timedelta(microseconds=1)
_LOOKS_BACK_S = (60, 3_600, 86_400, 31 * 86_400)


@dataclass(frozen=True, slots=True)
class SlotRule:
    """All that says when a trigger fires.

    Attributes:
        made_at: What a period counts from where there is no `starts_at`.
        catchup_s: How late a slot may fire, in seconds, beside what is on time.
    """

    trigger_id: str
    kind: TriggerKind
    schedule: str
    timezone: str
    starts_at: datetime | None
    ends_at: datetime | None
    made_at: datetime
    jitter_s: int
    catchup_s: int
    catchup: CatchUp


@dataclass(frozen=True, slots=True)
class DueSlots:
    """The slots of one trigger up to a moment.

    Attributes:
        missed: The first one that is too late to fire, if any, and how many there are, counted up to `COUNTED`.
        passed_over: The first one in whose place a later one fires, and how many.
        firing: Those that fire, in order.
        next_slot: The first one after all these; None where the schedule has ended.
    """

    missed: tuple[datetime, int] | None
    passed_over: tuple[datetime, int] | None
    firing: tuple[datetime, ...]
    next_slot: datetime | None


def window_s(catchup_s: int) -> int:
    """Return how late a slot may fire, in seconds: no window is so small that the fleet's own pace loses slots."""
    return max(catchup_s, ON_TIME_S)


def jitter_of(trigger_id: str, slot: datetime, jitter_s: int) -> timedelta:
    """Return how much later than its slot a trigger fires: the same for everybody who asks."""
    if not jitter_s:
        return timedelta()
    digest = hashlib.sha256(f"{trigger_id}/{slot.astimezone(UTC).isoformat()}".encode()).digest()
    return timedelta(microseconds=int.from_bytes(digest[:8]) * jitter_s * 1_000_000 >> 64)


def check_jitter(schedule: Schedule, jitter_s: int, *, after: datetime, made_at: datetime) -> None:
    """Refuse a jitter that would put a slot behind the next one.

    Raises:
        InvalidInput: It is not shorter than the time between two of the coming slots; the field is ``jitter_s``.
    """
    if not jitter_s:
        return
    coming = islice(next_firings(schedule, after=after, made_at=made_at), _LOOKED_AT)
    shortest = min((later - slot for slot, later in pairwise(coming)), default=None)
    if shortest is not None and shortest <= timedelta(seconds=jitter_s):
        raise InvalidInput(
            f"jitter_s: {jitter_s} is not less than the {shortest.total_seconds():g} s between two slots.",
            field="jitter_s",
        )


class Slots:
    """Computes slots, and remembers: many triggers have the same line and are due at the same time."""

    def __init__(self) -> None:
        self._schedule = lru_cache(_CACHED)(_schedule)
        self._after = lru_cache(_CACHED)(_first_after)

    def next_after(self, rule: SlotRule, after: datetime) -> datetime | None:
        """Return the first slot after a moment.

        Raises:
            InvalidInput: The schedule can no longer be read.
        """
        # Of cron lines neither the trigger nor its age matters: they share what was computed.
        made_at = rule.made_at if rule.kind == "every" else after
        return self._after(self._schedule_of(rule), after, made_at)

    def fire_at(self, rule: SlotRule, slot: datetime | None) -> datetime | None:
        """Return when a slot fires."""
        return None if slot is None else slot + jitter_of(rule.trigger_id, slot, rule.jitter_s)

    def due(self, rule: SlotRule, slot: datetime, now: datetime) -> DueSlots:
        """Return what is due of a trigger.

        Args:
            rule: The trigger's.
            slot: The first slot that nothing came of yet.
            now: By the database's clock.

        Raises:
            InvalidInput: The schedule can no longer be read.
        """
        too_late = now - timedelta(seconds=window_s(rule.catchup_s))
        missed, first = self._missed(rule, slot, too_late)
        if first is None or self._fires(rule, first) > now:
            return DueSlots(missed, None, (), first)
        if rule.catchup == "each":
            return self._each(rule, missed, first, now)
        due, following = self._until(rule, first, now, COUNTED)
        if following is not None and self._fires(rule, following) <= now:
            latest = self._latest(rule, now, due[-1])
            return DueSlots(missed, (first, COUNTED), (latest,), self.next_after(rule, latest))
        passed_over = (first, len(due) - 1) if len(due) > 1 else None
        return DueSlots(missed, passed_over, (due[-1],), following)

    def _each(self, rule: SlotRule, missed: tuple[datetime, int] | None, first: datetime, now: datetime) -> DueSlots:
        due, following = self._until(rule, first, now, _EACH)
        if following is not None and self._fires(rule, following) <= now:
            # No slot is left to be the only one of the next tick, which would take it for one that came on time.
            last, after = self._until(rule, following, now, 2)
            if len(last) == 1:
                due, following = [*due, *last], after
        return DueSlots(missed, None, tuple(due), following)

    def _missed(
        self, rule: SlotRule, slot: datetime, too_late: datetime
    ) -> tuple[tuple[datetime, int] | None, datetime | None]:
        """Return the slots that fire before `too_late`, and the first that does not."""
        late, following = self._until(rule, slot, too_late - _JUST_BEFORE, COUNTED)
        if following is not None and self._fires(rule, following) < too_late:
            jump = max(late[-1], too_late - timedelta(seconds=rule.jitter_s) - _JUST_BEFORE)
            following = self.next_after(rule, jump)
            while following is not None and self._fires(rule, following) < too_late:
                following = self.next_after(rule, following)
        return ((slot, len(late)) if late else None), following

    def _until(
        self, rule: SlotRule, slot: datetime, moment: datetime, most: int
    ) -> tuple[list[datetime], datetime | None]:
        """Return the slots from `slot` on that fire up to a moment, and the first after them."""
        if self._fires(rule, slot) > moment:
            return [], slot
        found = [slot]
        following = self.next_after(rule, slot)
        if following is None or self._fires(rule, following) > moment:
            return found, following
        # To begin anew costs five times what it costs to go on.
        for later in self._coming(rule, slot):
            if len(found) == most or self._fires(rule, later) > moment:
                return found, later
            found.append(later)
        return found, None

    def _latest(self, rule: SlotRule, now: datetime, known: datetime) -> datetime:
        """Return the latest slot that is due, where there are too many to go through them all."""
        for back_s in _LOOKS_BACK_S:
            after = max(known, now - timedelta(seconds=back_s + rule.jitter_s))
            latest = self._last_due(rule, after, now)
            if latest is not None:
                return latest
        return known

    def _last_due(self, rule: SlotRule, after: datetime, now: datetime) -> datetime | None:
        latest: datetime | None = None
        for slot in self._coming(rule, after):
            if self._fires(rule, slot) > now:
                break
            latest = slot
        return latest

    def _coming(self, rule: SlotRule, after: datetime) -> Iterator[datetime]:
        return next_firings(self._schedule_of(rule), after=after, made_at=rule.made_at)

    def _fires(self, rule: SlotRule, slot: datetime) -> datetime:
        return slot + jitter_of(rule.trigger_id, slot, rule.jitter_s)

    def _schedule_of(self, rule: SlotRule) -> Schedule:
        return self._schedule(rule.kind, rule.schedule, rule.timezone, rule.starts_at, rule.ends_at)


def _schedule(
    kind: TriggerKind, text: str, timezone: str, starts_at: datetime | None, ends_at: datetime | None
) -> Schedule:
    return parse_schedule(kind, text, timezone, starts_at=starts_at, ends_at=ends_at)


def _first_after(schedule: Schedule, after: datetime, made_at: datetime) -> datetime | None:
    return next(next_firings(schedule, after=after, made_at=made_at), None)
