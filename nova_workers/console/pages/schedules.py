"""The schedule of a trigger as a person builds it: once, every so often, weekly, or a cron line."""

import re
from collections.abc import Sequence
from datetime import time
from typing import Final, NamedTuple

from nova_workers.base.errors import InvalidInput
from nova_workers.console.forms import Form

WAYS: Final = (("at", "Once"), ("every", "Every …"), ("weekly", "On days of the week"), ("cron", "Cron line"))
UNITS: Final = (("60", "minutes"), ("3600", "hours"), ("86400", "days"))
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKLY: Final = re.compile(r"(\d{1,2}) (\d{1,2}) \* \* (\*|[1-7](?:-[1-7])?(?:,[1-7](?:-[1-7])?)*)")


class Built(NamedTuple):
    """What a stored schedule is in the builder's fields.

    Attributes:
        way: One of `WAYS`.
        number: Of the period, in units.
        unit: Seconds of the unit.
        days: Numbers of the days of the week, Monday is 1.
        at: The time of day, as ``HH:MM``.
        line: The cron line.
    """

    way: str = "weekly"
    number: str = "1"
    unit: str = "3600"
    days: Sequence[str] = ("1", "2", "3", "4", "5")
    at: str = "09:00"
    line: str = ""


def built_from(kind: str, schedule: str) -> Built:
    """Return the fields that a schedule has in the builder. A cron line of days and one time is a weekly one."""
    if kind == "every" and schedule.isdecimal():
        seconds = int(schedule)
        unit = next((size for size in (86_400, 3_600, 60) if seconds % size == 0), 60)
        return Built("every", str(seconds // unit) if seconds % unit == 0 else schedule, str(unit))
    found = _WEEKLY.fullmatch(schedule) if kind == "cron" else None
    if found is not None and int(found[1]) < 60 and int(found[2]) < 24:
        return Built("weekly", days=_days(found[3]), at=f"{int(found[2]):02}:{int(found[1]):02}", line=schedule)
    return Built(kind, line=schedule)


def schedule_of(form: Form) -> tuple[str, str]:
    """Return the kind and the schedule that the builder's fields are; of one that fires once the schedule is empty.

    Raises:
        InvalidInput: A field has no value; names it.
    """
    way = form.value("kind")
    if way == "every":
        number = form.given("every")
        # A form without the builder's fields has seconds.
        if number is None:
            return "every", form.value("schedule")
        if not number.isdecimal() or len(number) > 6:
            raise InvalidInput(f"{number!r} is no whole number.", field="every")
        return "every", str(int(number) * int(form.value("unit", "60")))
    if way == "weekly":
        days, at = sorted(set(form.list("day")) & set("1234567")), form.given("time")
        if not days:
            raise InvalidInput("Choose at least one day.", field="day")
        try:
            when = time.fromisoformat(at or "")
        except ValueError as error:
            raise InvalidInput("Give the time of day, such as 09:00.", field="time") from error
        return "cron", f"{when.minute} {when.hour} * * {'*' if len(days) == len(DAYS) else ','.join(days)}"
    return way, form.value("schedule") if way == "cron" else ""


def sentence(kind: str, schedule: str, zone: str) -> str:
    """Return a schedule in words; empty for a point in time, which is shown as such."""
    built = built_from(kind, schedule)
    if built.way == "every":
        unit = dict(UNITS).get(built.unit, "seconds")
        number = built.number
        return f"Fires every {unit.removesuffix('s')}." if number == "1" else f"Fires every {number} {unit}."
    if built.way == "weekly":
        return f"Fires {_in_words(built.days)} at {built.at}, {zone} time."
    return f"Fires by the cron line {schedule}, {zone} time." if kind == "cron" else ""


def _in_words(days: Sequence[str]) -> str:
    if len(days) == len(DAYS):
        return "every day"
    if list(days) == list("12345"):
        return "on working days, Monday to Friday,"
    names = [DAYS[int(day) - 1] for day in days]
    return "on " + (" and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0])


def _days(text: str) -> tuple[str, ...]:
    if text == "*":
        return tuple("1234567")
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen |= set(range(int(first), int(last or first) + 1))
    return tuple(str(day) for day in sorted(chosen))
