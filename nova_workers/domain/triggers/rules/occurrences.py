"""Which occurrences of a trigger are due, and which are missed or replaced by a later one. Pure functions of time.

An occurrence is one planned time of the schedule. It fires after its jitter, which is a hash of trigger and time, so
that every process computes the same. Occurrences fire in order: none is due before its predecessor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.http.triggers import CatchUp, TriggerKind
from nova_workers.domain.triggers.rules.schedules import Schedule, next_firings, parse_schedule

HELD_S = 30
"""How often the triggers of a paused agent are checked. Until the agent resumes, due occurrences are only late."""
GATE_LEASE_S = 120
"""How long a trigger is reserved while its gate is evaluated."""
_QUEUES_S = 30
"""A tick, its time in the queue, and the batches before."""
ON_TIME_S = HELD_S + GATE_LEASE_S + _QUEUES_S
"""An occurrence that fires at most this much later is on time: a fleet without an outage may be this late."""

COUNTED = 100
"""Occurrences are counted up to this number; above it, reports say "at least"."""
_EACH = 100
"""Occurrences of one trigger that a tick takes if each fires. The next tick continues."""
_CACHED = 8_192
_LOOKED_AT = 50
_JUST_BEFORE = timedelta(microseconds=1)
_LOOKS_BACK_S = (60, 3_600, 86_400, 31 * 86_400)


@dataclass(frozen=True, slots=True)
class OccurrenceRule:
    """What determines when a trigger fires.

    Attributes:
        made_at: What a period counts from if there is no `starts_at`.
        catchup_s: How late an occurrence may fire, in seconds.
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
class DueOccurrences:
    """The occurrences of one trigger up to a moment.

    Attributes:
        missed: The first one that is too late to fire, if any, and how many there are, counted up to `COUNTED`.
        passed_over: The first one that a later one replaces, and how many.
        firing: Those that fire, in order.
        next_occurrence: The first one after all these; None if the schedule has ended.
    """

    missed: tuple[datetime, int] | None
    passed_over: tuple[datetime, int] | None
    firing: tuple[datetime, ...]
    next_occurrence: datetime | None


def window_s(catchup_s: int) -> int:
    """Return how late an occurrence may fire, in seconds: at least `ON_TIME_S`, so that a healthy fleet loses none."""
    return max(catchup_s, ON_TIME_S)


def jitter_of(trigger_id: str, occurrence: datetime, jitter_s: int) -> timedelta:
    """Return how much later than planned an occurrence fires: the same in every process."""
    if not jitter_s:
        return timedelta()
    digest = hashlib.sha256(f"{trigger_id}/{occurrence.astimezone(UTC).isoformat()}".encode()).digest()
    return timedelta(microseconds=int.from_bytes(digest[:8]) * jitter_s * 1_000_000 >> 64)


def check_jitter(schedule: Schedule, jitter_s: int, *, after: datetime, made_at: datetime) -> None:
    """Refuse a jitter that could reorder occurrences.

    Raises:
        InvalidInput: It is not shorter than the time between two of the next occurrences; the field is ``jitter_s``.
    """
    if not jitter_s:
        return
    coming = islice(next_firings(schedule, after=after, made_at=made_at), _LOOKED_AT)
    shortest = min((later - occurrence for occurrence, later in pairwise(coming)), default=None)
    if shortest is not None and shortest <= timedelta(seconds=jitter_s):
        raise InvalidInput(
            f"jitter_s: {jitter_s} is not less than the {shortest.total_seconds():g} s between two occurrences.",
            field="jitter_s",
        )


class Occurrences:
    """Computes occurrences, with a cache: many triggers have the same line and are due at the same time."""

    def __init__(self) -> None:
        self._schedule = lru_cache(_CACHED)(_schedule)
        self._after = lru_cache(_CACHED)(_first_after)

    def next_after(self, rule: OccurrenceRule, after: datetime) -> datetime | None:
        """Return the first occurrence after a moment.

        Raises:
            InvalidInput: The schedule can no longer be parsed.
        """
        # The result of a cron line does not depend on the trigger, so that triggers with the same line share it.
        made_at = rule.made_at if rule.kind == "every" else after
        return self._after(self._schedule_of(rule), after, made_at)

    def fire_at(self, rule: OccurrenceRule, occurrence: datetime | None) -> datetime | None:
        """Return when an occurrence fires."""
        return None if occurrence is None else occurrence + jitter_of(rule.trigger_id, occurrence, rule.jitter_s)

    def due(self, rule: OccurrenceRule, occurrence: datetime, now: datetime) -> DueOccurrences:
        """Return which occurrences of a trigger are due.

        Args:
            rule: The trigger's.
            occurrence: The first one without an outcome.
            now: By the database's clock.

        Raises:
            InvalidInput: The schedule can no longer be parsed.
        """
        too_late = now - timedelta(seconds=window_s(rule.catchup_s))
        missed, first = self._missed(rule, occurrence, too_late)
        if first is None or self._fires(rule, first) > now:
            return DueOccurrences(missed, None, (), first)
        if rule.catchup == "each":
            return self._each(rule, missed, first, now)
        due, following = self._until(rule, first, now, COUNTED)
        if following is not None and self._fires(rule, following) <= now:
            latest = self._latest(rule, now, due[-1])
            return DueOccurrences(missed, (first, COUNTED), (latest,), self.next_after(rule, latest))
        passed_over = (first, len(due) - 1) if len(due) > 1 else None
        return DueOccurrences(missed, passed_over, (due[-1],), following)

    def _each(
        self, rule: OccurrenceRule, missed: tuple[datetime, int] | None, first: datetime, now: datetime
    ) -> DueOccurrences:
        due, following = self._until(rule, first, now, _EACH)
        if following is not None and self._fires(rule, following) <= now:
            # Do not leave a single one for the next tick, which would treat it as on time.
            last, after = self._until(rule, following, now, 2)
            if len(last) == 1:
                due, following = [*due, *last], after
        return DueOccurrences(missed, None, tuple(due), following)

    def _missed(
        self, rule: OccurrenceRule, occurrence: datetime, too_late: datetime
    ) -> tuple[tuple[datetime, int] | None, datetime | None]:
        """Return the first occurrence that fires before `too_late` with their count, and the first that does not."""
        late, following = self._until(rule, occurrence, too_late - _JUST_BEFORE, COUNTED)
        if following is not None and self._fires(rule, following) < too_late:
            jump = max(late[-1], too_late - timedelta(seconds=rule.jitter_s) - _JUST_BEFORE)
            following = self.next_after(rule, jump)
            while following is not None and self._fires(rule, following) < too_late:
                following = self.next_after(rule, following)
        return ((occurrence, len(late)) if late else None), following

    def _until(
        self, rule: OccurrenceRule, occurrence: datetime, moment: datetime, most: int
    ) -> tuple[list[datetime], datetime | None]:
        """Return the occurrences from `occurrence` on that fire up to a moment, and the first after them."""
        if self._fires(rule, occurrence) > moment:
            return [], occurrence
        found = [occurrence]
        following = self.next_after(rule, occurrence)
        if following is None or self._fires(rule, following) > moment:
            return found, following
        # One iterator: starting a new one for each occurrence costs five times as much.
        for later in self._coming(rule, occurrence):
            if len(found) == most or self._fires(rule, later) > moment:
                return found, later
            found.append(later)
        return found, None

    def _latest(self, rule: OccurrenceRule, now: datetime, known: datetime) -> datetime:
        """Return the latest due occurrence, if there are too many to iterate over."""
        for back_s in _LOOKS_BACK_S:
            after = max(known, now - timedelta(seconds=back_s + rule.jitter_s))
            latest = self._last_due(rule, after, now)
            if latest is not None:
                return latest
        return known

    def _last_due(self, rule: OccurrenceRule, after: datetime, now: datetime) -> datetime | None:
        latest: datetime | None = None
        for occurrence in self._coming(rule, after):
            if self._fires(rule, occurrence) > now:
                break
            latest = occurrence
        return latest

    def _coming(self, rule: OccurrenceRule, after: datetime) -> Iterator[datetime]:
        return next_firings(self._schedule_of(rule), after=after, made_at=rule.made_at)

    def _fires(self, rule: OccurrenceRule, occurrence: datetime) -> datetime:
        return occurrence + jitter_of(rule.trigger_id, occurrence, rule.jitter_s)

    def _schedule_of(self, rule: OccurrenceRule) -> Schedule:
        return self._schedule(rule.kind, rule.schedule, rule.timezone, rule.starts_at, rule.ends_at)


def _schedule(
    kind: TriggerKind, text: str, timezone: str, starts_at: datetime | None, ends_at: datetime | None
) -> Schedule:
    return parse_schedule(kind, text, timezone, starts_at=starts_at, ends_at=ends_at)


def _first_after(schedule: Schedule, after: datetime, made_at: datetime) -> datetime | None:
    return next(next_firings(schedule, after=after, made_at=made_at), None)
