"""A time axis as SVG: moments of triggers, past and to come, and now."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from markupsafe import Markup

_WIDTH, _HEIGHT, _MARGIN, _LINE_Y, _EDGE = 1000, 64, 20, 30, 50
_TICKS_MIN = (1, 5, 15, 30, 60, 180, 360, 720, 1_440, 10_080, 43_200, 525_600)
_TICKS = tuple(timedelta(minutes=minutes) for minutes in _TICKS_MIN)
_MAX_TICKS = 9
_LINE = Markup('<line class="{kind}" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}"/>')
_LABEL = Markup('<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')
_DOT = Markup('<circle class="{kind}" cx="{x}" cy="{y}" r="5"><title>{title}</title></circle>')


class Mark(NamedTuple):
    """A moment on the axis. `tone` is ``next``, ``started``, ``skipped`` or ``failed``."""

    at: datetime
    tone: str
    title: str


def time_axis(marks: Sequence[Mark], now: datetime, begin: datetime, end: datetime) -> Markup:
    """Return the axis from `begin` to `end`. Marks outside are left out."""
    span_s = max((end - begin).total_seconds(), 60.0)

    def x(at: datetime) -> float:
        return round(_MARGIN + (at - begin).total_seconds() / span_s * (_WIDTH - 2 * _MARGIN), 1)

    shown = [mark for mark in marks if begin <= mark.at <= end]
    parts = [_LINE.format(x1=_MARGIN, x2=_WIDTH - _MARGIN, y1=_LINE_Y, y2=_LINE_Y, kind="line")]
    for tick, label in _ticks(begin, end):
        parts.append(_LINE.format(x1=x(tick), x2=x(tick), y1=_LINE_Y - 3, y2=_LINE_Y + 3, kind="line"))
        parts.append(_LABEL.format(x=x(tick), y=_LINE_Y + 27, text=label, anchor=_anchor(x(tick))))
    parts.append(_LINE.format(x1=x(now), x2=x(now), y1=8, y2=_LINE_Y + 8, kind="now"))
    for mark in shown:
        title = f"{mark.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC · {mark.title}"
        parts.append(_DOT.format(kind=mark.tone, x=x(mark.at), y=_LINE_Y, title=title))
    label = f"{len(shown)} moments from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
    return Markup('<svg class="axis" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, label, Markup("").join(parts)
    )


def _anchor(x: float) -> str:
    """Return to which side of its tick a label extends, so that it stays within the axis on phones, too."""
    return "start" if x < _EDGE else "end" if x > _WIDTH - _EDGE else "middle"


def _ticks(begin: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """Return round times with labels, at most nine of them."""
    span = max(end - begin, timedelta(minutes=1))
    step = next((step for step in _TICKS if span / step <= _MAX_TICKS), _TICKS[-1])
    form = "%H:%M" if step < timedelta(days=1) else "%b %d" if step < timedelta(days=365) else "%Y"
    first = -(-int(begin.timestamp()) // int(step.total_seconds())) * int(step.total_seconds())
    at = datetime.fromtimestamp(first, tz=UTC)
    ticks: list[tuple[datetime, str]] = []
    while at <= end:
        ticks.append((at, f"{at:{form}}"))
        at += step
    return ticks
