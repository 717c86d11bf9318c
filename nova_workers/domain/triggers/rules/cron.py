"""When a cron line fires. Pure functions of time.

**Lines** have five fields: minute, hour, day of the month, month, day of the week; a sixth, the last, is the second. A
field is ``*``, a value, a range ``a-b`` (which may go past the end: ``22-2``), each with an optional step ``/n``, or a
list of these. A step counts from the first value: ``22-10/5`` is 22, 3 and 8. Months and days of the week have English
names of three letters, Sunday is 0 and 7, and ``L`` is the last day of the month. If neither of the two day fields
begins with ``*``, a day matches if it matches one of them; otherwise it must match both. Fields are expanded to plain
values here, because croniter counts the steps of a wrapped range differently and treats a list of every value as ``*``.

**When clocks change**, lines of two kinds differ. A line whose minute or hour begins with ``*`` is an interval; every
other one names times of the day.

=====================  ====================================  =======================================================
a wall time            of a named time                       of an interval
=====================  ====================================  =======================================================
that does not exist    at the first instant after the gap,   skipped; an interval that names its hours
                       once for all times in the gap         (``*/15 2 * * *``) would miss its day, so it fires
                                                             once after the gap
that occurs twice      once, the first time                  both times
=====================  ====================================  =======================================================
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from typing import Any, Final
from zoneinfo import ZoneInfo

from nova_workers.base.errors import InvalidInput

_WALLS: Final = "nova_workers.domain.triggers.rules.cron_walls"
"""Imported by name with the first line: a fleet without triggers needs no library for them."""

_FIELDS = ("minute", "hour", "day of the month", "month", "day of the week", "second")
_CYCLES = (range(60), range(24), range(1, 32), range(1, 13), range(7), range(60))
_DAY_OF_MONTH, _DAY_OF_WEEK, _SECONDS = 2, 4, 5
_NUMBER = r"\d{1,2}"
_POSITIVE = r"0?[1-9]|[1-9]\d"
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS = "sun|mon|tue|wed|thu|fri|sat"
_VALUES = (_NUMBER, _NUMBER, _POSITIVE, f"{_POSITIVE}|{_MONTHS}", rf"\d|{_DAYS}", _NUMBER)
_ITEMS = tuple(
    re.compile(rf"(?:\*|(?P<low>{value})(?:-(?P<high>{value}))?)(?:/(?P<step>{_POSITIVE}))?", re.ASCII)
    for value in _VALUES
)
_NUMBERS = {name: str(number) for number, name in (*enumerate(_MONTHS.split("|"), 1), *enumerate(_DAYS.split("|")))}
_LAST_DAY = "l"
_FORM = "Give minute, hour, day of the month, month and day of the week, such as '30 9 * * mon-fri'"
_SECOND = timedelta(seconds=1)
_DAY_LONG = timedelta(days=1)
_ANY_YEAR = datetime(2024, 1, 1)
_LAST_YEAR = 2199
"""An upper bound, because arithmetic at the end of the calendar fails."""


@dataclass(frozen=True, slots=True)
class _Expanded:
    """A line as plain lists of values. `either_day`: a day matches if it matches one of the two day fields."""

    line: str
    either_day: bool


def parse_cron(text: str) -> str:
    """Return a cron line in its normal form: lower case, one space between fields.

    Raises:
        InvalidInput: It is not a cron line, or never fires; the field is ``schedule``.
    """
    fields = text.lower().split()
    if len(fields) not in (5, 6):
        raise _refused(text, f"it has {len(fields)} fields")
    line = " ".join(fields)
    library = _library()
    try:
        next(_walls(library, line, _ANY_YEAR))
    except (library.CroniterError, _NoValueError) as error:
        raise _refused(text, str(error)) from error
    return line


def names_many_seconds(line: str) -> bool:
    """Return whether a line from `parse_cron` may fire more than once a minute."""
    seconds = line.split()[_SECONDS:]
    return bool(seconds) and len(_values(_SECONDS, seconds[0])) > 1


class _NoValueError(ValueError):
    """A field has an item of an unknown form."""


@lru_cache(1_024)
def _expanded(line: str) -> _Expanded:
    fields = line.split()
    values = [_values(place, field) for place, field in enumerate(fields)]
    either_day = not (fields[_DAY_OF_MONTH].startswith("*") or fields[_DAY_OF_WEEK].startswith("*"))
    lists = [_listed(place, found) for place, found in enumerate(values)]
    if either_day and "*" in (lists[_DAY_OF_MONTH], lists[_DAY_OF_WEEK]):
        lists[_DAY_OF_MONTH] = lists[_DAY_OF_WEEK] = "*"
    return _Expanded(" ".join(lists), either_day)


def _values(place: int, field: str) -> set[int | str]:
    """Return all values of a field: numbers, and `_LAST_DAY`."""
    values: set[int | str] = set()
    for item in field.split(","):
        if place == _DAY_OF_MONTH and item == _LAST_DAY:
            values.add(_LAST_DAY)
        else:
            values.update(_numbers(place, item))
    return values


def _numbers(place: int, item: str) -> Iterator[int]:
    found, cycle = _ITEMS[place].fullmatch(item), _CYCLES[place]
    if found is None:
        raise _NoValueError(f"its {_FIELDS[place]} is {item!r}")
    step = int(found["step"] or 1)
    if found["low"] is None:
        return iter(cycle[::step])
    low = int(_NUMBERS.get(found["low"], found["low"]))
    high = low if found["high"] is None else int(_NUMBERS.get(found["high"], found["high"]))
    # Sunday is also 7.
    most = cycle[-1] + (place == _DAY_OF_WEEK)
    if max(low, high) > most or (found["high"] is not None and low == high):
        raise _NoValueError(f"its {_FIELDS[place]} is {item!r}")
    if found["high"] is None and found["step"] is not None:
        high = cycle[-1]
    if low > high:
        high += len(cycle)
    return ((value - cycle[0]) % len(cycle) + cycle[0] for value in range(low, high + 1, step))


def _listed(place: int, values: set[int | str]) -> str:
    if values.issuperset(_CYCLES[place]):
        return "*"
    return ",".join(sorted(map(str, values)))


def cron_firings(line: str, zone: ZoneInfo, *, after: datetime) -> Iterator[datetime]:
    """Yield when a line fires after a moment: in order, each instant once, in UTC.

    Args:
        line: From `parse_cron`.
        zone: The time zone of the line.
        after: With a time zone.
    """
    minute, hour = line.split()[:2]
    interval = minute.startswith("*") or hour.startswith("*")
    last = after.astimezone(UTC)
    # When clocks go back, some wall times of the second pass precede some of the first: a heap orders them.
    waiting: list[datetime] = []
    for wall in _all_walls(line, last.astimezone(zone).replace(tzinfo=None) - _put_back(zone, last)):
        instants = _instants(wall, zone, both=interval, made_up=not hour.startswith("*"))
        earliest = (wall.replace(tzinfo=zone)).astimezone(UTC)
        while waiting and waiting[0] < earliest:
            firing = heapq.heappop(waiting)
            if firing > last:
                last = firing
                yield firing
        for instant in instants:
            heapq.heappush(waiting, instant)
    for firing in sorted(waiting):
        if firing > last:
            last = firing
            yield firing


def _put_back(zone: ZoneInfo, moment: datetime) -> timedelta:
    """Return by how much clocks go back within a day of `moment`: wall times that far before it may still occur."""
    moments = (moment - _DAY_LONG, moment, moment + _DAY_LONG)
    offsets = [each.astimezone(zone).utcoffset() or timedelta() for each in moments]
    return max(offsets[0] - offsets[1], offsets[1] - offsets[2], timedelta())


def _all_walls(line: str, after: datetime) -> Iterator[datetime]:
    library = _library()
    try:
        for wall in _walls(library, line, after):
            if wall.year > _LAST_YEAR:
                return
            yield wall
    except library.CroniterError:
        return


def _walls(library: Any, line: str, after: datetime) -> Iterator[datetime]:
    expanded = _expanded(line)
    walls: Iterator[datetime] = library.walls(expanded.line, after, either_day=expanded.either_day)
    return walls


def _library() -> Any:
    return import_module(_WALLS)


def _instants(wall: datetime, zone: ZoneInfo, *, both: bool, made_up: bool) -> tuple[datetime, ...]:
    """Return when a clock of the zone shows a wall time or, for one in a gap, when it is due instead."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return (first,)
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return (first, second) if both else (first,)
    # It is in a gap: with the later offset it lies before the gap, with the earlier one after it.
    return (_first_after_gap(second, first, zone),) if made_up else ()


def _first_after_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0) if middle.replace(microsecond=0) > before else before + _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after


def _refused(text: str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"schedule: {text[:80]!r} is not a cron line, or never fires: {reason}. {_FORM}; a sixth field is the second.",
        field="schedule",
    )
