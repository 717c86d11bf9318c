"""When a trigger fires: cron lines, points in time and periods. Pure functions of time."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.http.triggers import MIN_PERIOD_S, TriggerKind
from nova_workers.domain.triggers.rules.cron import cron_firings, parse_cron

_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PERIOD = re.compile(r"\d{1,9}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}", re.ASCII)
_YEARS = range(2000, 2101)
_MAX_PERIOD_S = 366 * 86_400
_NO_ZONES = frozenset({"localtime", "Factory", "posixrules"})
"""Names whose meaning differs between machines."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A trigger's schedule.

    Attributes:
        kind: The form of `text`.
        text: In the normal form, as stored.
        zone: The time zone of a cron line.
        starts_at: It does not fire before; a period counts from here.
        ends_at: It does not fire after.
    """

    kind: TriggerKind
    text: str
    zone: ZoneInfo
    starts_at: datetime | None = None
    ends_at: datetime | None = None


def parse_schedule(
    kind: TriggerKind,
    text: str,
    timezone: str,
    *,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> Schedule:
    """Check and parse a schedule.

    Raises:
        InvalidInput: A part has the wrong form; the field is ``schedule``, ``timezone``, ``starts_at`` or ``ends_at``.
    """
    zone = time_zone(timezone)
    for field, moment in (("starts_at", starts_at), ("ends_at", ends_at)):
        if moment is not None:
            _check_year(moment, field)
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        raise InvalidInput(
            f"ends_at: {ends_at.isoformat()} is not after starts_at {starts_at.isoformat()}.", field="ends_at"
        )
    parse = {"cron": parse_cron, "at": _parse_at, "every": _parse_every}[kind]
    return Schedule(kind, parse(text), zone, starts_at, ends_at)


def next_firings(schedule: Schedule, *, after: datetime, made_at: datetime) -> Iterator[datetime]:
    """Yield when a trigger fires after a moment: in order, each instant once, in UTC. Ends with the schedule.

    Args:
        schedule: From `parse_schedule`.
        after: With a time zone.
        made_at: When the trigger was created. A period counts from there if the schedule has no start.
    """
    start, end = schedule.starts_at, schedule.ends_at
    if start is not None and start > after:
        # The start itself counts.
        after = start - timedelta(microseconds=1)
    for firing in _firings(schedule, after, made_at):
        if end is not None and firing > end:
            return
        yield firing


def _firings(schedule: Schedule, after: datetime, made_at: datetime) -> Iterator[datetime]:
    if schedule.kind == "cron":
        return cron_firings(schedule.text, schedule.zone, after=after)
    if schedule.kind == "at":
        at = datetime.fromisoformat(schedule.text)
        return iter((at,) if at > after else ())
    period = timedelta(seconds=int(schedule.text))
    first = made_at + period if schedule.starts_at is None else schedule.starts_at
    return _periods(first.astimezone(UTC), period, after)


def _periods(first: datetime, period: timedelta, after: datetime) -> Iterator[datetime]:
    firing = first if first > after else first + ((after - first) // period + 1) * period
    while firing.year in _YEARS:
        yield firing
        firing += period


def time_zone(name: str) -> ZoneInfo:
    """Return a time zone.

    Raises:
        InvalidInput: There is no time zone of that name.
    """
    try:
        if _ZONE.fullmatch(name) is None or name in _NO_ZONES:
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        close = get_close_matches(name, sorted(available_timezones()), n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else " Give one such as Europe/Berlin, or UTC."
        raise InvalidInput(
            f"timezone: {name!r} is not a time zone of the IANA database.{hint}", field="timezone"
        ) from error


def _parse_at(text: str) -> str:
    try:
        if _RFC_3339.fullmatch(text) is None:
            raise ValueError("it is not in RFC 3339")
        at = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise InvalidInput(
            f"schedule: {text[:80]!r} is not a point in time: {error}. Give date, time and offset, such as "
            "'2030-05-01T09:00:00+02:00' or '2030-05-01T07:00:00Z'.",
            field="schedule",
        ) from error
    _check_year(at, "schedule")
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _parse_every(text: str) -> str:
    if _PERIOD.fullmatch(text) is None or not MIN_PERIOD_S <= int(text) <= _MAX_PERIOD_S:
        raise InvalidInput(
            f"schedule: {text[:80]!r} is not a period. Give whole seconds, {MIN_PERIOD_S} to {_MAX_PERIOD_S}, such as "
            "'3600'.",
            field="schedule",
        )
    return str(int(text))


def _check_year(moment: datetime, field: str) -> None:
    if moment.year not in _YEARS:
        raise InvalidInput(
            f"{field}: {moment.isoformat()} is not between the years {_YEARS[0]} and {_YEARS[-1]}.", field=field
        )
