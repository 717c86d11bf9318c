"""Dates and times of day on the clocks of a time zone, and the instants that they are.

A person types what a clock on the wall shows (``datetime-local``) and names the zone. Where the clocks go forward some
of these times do not exist, and are refused; where they go back some exist twice, and the first is taken. A field that
was not changed keeps its instant, also the second of two and its seconds.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from markupsafe import Markup

from nova_workers.base.clock import Clock, spell_duration
from nova_workers.base.errors import InvalidInput
from nova_workers.console.formats import filters

ZONES: Final = tuple(sorted(name for name in available_timezones() if "/" in name or name == "UTC"))
"""Offered; others of the IANA database, which are former or short names, are accepted too."""

_MINUTES, _SECONDS = "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"


def wall(at: datetime | str | None, zone: str) -> str:
    """Return an instant as a field for a local time has it: without an offset, and with seconds if there are any."""
    if at is None:
        return ""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    local = moment.astimezone(_zone(zone))
    return local.strftime(_SECONDS if local.second or local.microsecond else _MINUTES)


def read_local(field: str, text: str | None, zone: str, stored: datetime | None = None) -> datetime | None:
    """Return the instant of a local time, in UTC; None if there is no text.

    Args:
        field: What the text was typed into, for the message of a refusal.
        text: A date and a time of day; one with an offset of its own is taken as it is.
        zone: Where clocks show it: an IANA name.
        stored: The instant that the field was filled from, which an unchanged text means.

    Raises:
        InvalidInput: It is no time, the clocks skip it, or there is no such zone.
    """
    if text is None:
        return None
    if stored is not None and text == wall(stored, zone):
        return stored
    return _instants(field, text, zone)[0]


def time_filters(clock: Clock) -> dict[str, Callable[..., object]]:
    """Return the filters of templates for local times."""
    return {"wall": wall, "instant": partial(show_instant, clock=clock)}


def show_instant(text: str, zone: str, clock: Clock) -> Markup:
    """Return which instant a local time is, in its zone, in UTC, and how far away it is; or why it is none."""
    if not text:
        return Markup()
    try:
        first, second = _instants("at", text, zone)
    except InvalidInput as error:
        return Markup('<span class="error">{}</span>').format(error.message)
    here = first.astimezone(_zone(zone))
    shown = Markup("{} {} = {} UTC, {}").format(
        f"{here:%a %Y-%m-%d %H:%M}", _offset(here), f"{first:%a %Y-%m-%d %H:%M}", filters(clock)["time"](first)
    )
    if first == second:
        return shown
    back = spell_duration((second - first).total_seconds())
    return shown + Markup(". Clocks go back by {} and show this time twice: it is the first of both.").format(back)


def _instants(field: str, text: str, zone: str) -> tuple[datetime, datetime]:
    """Return the two instants at which clocks show a time, in UTC; as a rule both are the same."""
    place = _zone(zone)
    try:
        given = datetime.fromisoformat(text)
        if given.tzinfo is not None:
            at = given.astimezone(UTC)
            return at, at
        first, second = (given.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1))
        shown = first.astimezone(place)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{text!r} is not a date and a time, such as 2030-01-31T09:00.", field=field) from error
    if shown.replace(tzinfo=None) != given:
        raise InvalidInput(
            f"Clocks in {zone} never show {given:%Y-%m-%d %H:%M}: they go forward then. "
            f"Give an earlier time, or one from {shown:%H:%M} on.",
            field=field,
        )
    return first, second


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInput(f"{name!r} is not a time zone, such as Europe/Berlin.", field="timezone") from error


def _offset(at: datetime) -> str:
    return f"UTC{at.isoformat()[-6:]}" if at.utcoffset() else "UTC"
