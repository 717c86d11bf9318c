"""The schedule of a trigger as a person builds it, once, every so often, weekly or by a cron line; and in words."""

import re
from collections.abc import Callable, Sequence
from datetime import time
from typing import Final, NamedTuple

from nova_workers.base.errors import InvalidInput
from nova_workers.console.forms import Form

WAYS: Final = (("at", "Once"), ("every", "Every …"), ("weekly", "On days of the week"), ("cron", "Cron line"))
UNITS: Final = (("60", "minutes"), ("3600", "hours"), ("86400", "days"))
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAYS: Final = r"\*|[0-7](?:-[0-7])?(?:,[0-7](?:-[0-7])?)*"
_WEEKLY: Final = re.compile(rf"(\d{{1,2}}) (\d{{1,2}}) \* \* ({_DAYS})")


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
    words = in_words(kind, schedule)
    return f"Fires {words}, {zone} time." if kind == "cron" else words and f"Fires {words}."


def in_words(kind: str, schedule: str) -> str:
    """Return when a schedule fires, as the rest of a sentence; empty for a point in time."""
    if kind == "every":
        built = built_from(kind, schedule)
        return _every(built.number, dict(UNITS).get(built.unit, "seconds"))
    if kind != "cron":
        return ""
    line = _NAMED.get(schedule, schedule)
    for pattern, words in _LINES:
        if (found := pattern.fullmatch(line)) and (said := words(*found.groups())):
            return said
    return f"by the cron line {schedule}"


def _every(number: str, unit: str) -> str:
    return f"every {unit.removesuffix('s')}" if number == "1" else f"every {number} {unit}"


def _by_minutes(step: str) -> str | None:
    # Others begin anew with each hour, so that their pauses differ.
    return _every(step, "minutes") if int(step) and 60 % int(step) == 0 else None


def _hourly(minute: str, step: str | None) -> str | None:
    if int(minute) > 59 or (step and (not int(step) or 24 % int(step))):
        return None
    return f"{_every(step or '1', 'hours')}, at minute {int(minute)}"


def _at_times(minute: str, hours: str, days: str) -> str | None:
    each = [int(hour) for hour in hours.split(",")]
    if int(minute) > 59 or max(each) > 23:
        return None
    return f"{_on(_days(days))} at {_listed([f'{hour:02}:{int(minute):02}' for hour in each])}"


def _monthly(minute: str, hour: str, day: str) -> str | None:
    if int(minute) > 59 or int(hour) > 23:
        return None
    return f"on day {int(day)} of each month at {int(hour):02}:{int(minute):02}"


_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
}
_LINES: Final[tuple[tuple[re.Pattern[str], Callable[..., str | None]], ...]] = (
    (re.compile(r"\*/(\d{1,2}) \* \* \* \*"), _by_minutes),
    (re.compile(r"(\d{1,2}) \*(?:/(\d{1,2}))? \* \* \*"), _hourly),
    (re.compile(rf"(\d{{1,2}}) (\d{{1,2}}(?:,\d{{1,2}})*) \* \* ({_DAYS})"), _at_times),
    (re.compile(r"(\d{1,2}) (\d{1,2}) (\d{1,2}) \* \*"), _monthly),
)
"""Lines of cron that have words, each with the function of its numbers that says them, or None."""


def _on(days: Sequence[str]) -> str:
    if len(days) == len(DAYS):
        return "every day"
    if list(days) == list("12345"):
        return "on working days, Monday to Friday,"
    return f"on {_listed([DAYS[int(day) - 1] for day in days])}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _days(text: str) -> tuple[str, ...]:
    if text == "*":
        return tuple("1234567")
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        # Sunday is 0 as well as 7.
        chosen |= {day or 7 for day in range(int(first), int(last or first) + 1)}
    return tuple(str(day) for day in sorted(chosen))
