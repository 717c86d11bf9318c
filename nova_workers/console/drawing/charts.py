"""Plots as SVG, made on the server: stacked bars and lines over time.

A column of a plot, as high as it is, has a line in its middle and its values as a title, and may lead to what is behind
them. The last one is a stop of the tab key; from there `static/js/plots.js` moves by arrows, and shows the values.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import Final, NamedTuple

from markupsafe import Markup

_WIDTH, _HEIGHT, _TOP, _BOTTOM = 600.0, 140.0, 16.0, 20.0
_GAP = 0.2
"""Between two bars, as a part of their width."""
_WIDEST = 48.0
"""A bar, where there are few."""
_MAX_LABELS, _LABEL_WIDTH = 8, 32.0
_MOST_TICKS: Final = 4
_RECT = Markup('<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}"/>')
_LINE = Markup('<path class="line {kind}" d="{d}"/>')
_DOT = Markup('<circle class="{kind}" cx="{x}" cy="{y}" r="2.5"/>')
_COLUMN = Markup(
    '<rect class="column" x="{x}" y="0" width="{w}" height="{h}"><title>{title}</title></rect>'
    '<line class="cross" x1="{middle}" x2="{middle}" y1="{top}" y2="{bottom}"/>'
)
_AT = Markup('<g class="at" role="img" tabindex="{tab}" aria-label="{label}" data-kinds="{kinds}">{inside}</g>')
_LINK = Markup('<a class="at" href="{href}" tabindex="{tab}" aria-label="{label}" data-kinds="{kinds}">{inside}</a>')
_TEXT = Markup('<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')
_GRID = Markup('<line class="grid" x1="0" x2="{width}" y1="{y}" y2="{y}"/>')
_PLOT = Markup('<svg class="plot" viewBox="0 0 {width} {height}" role="group" aria-label="{label}">{inside}</svg>')


class Plot(NamedTuple):
    """A plot with its legend: of each series the class of its colour, its name, and its total in words.

    Attributes:
        of_agents: Whether each series is of an agent.
    """

    title: str
    svg: Markup
    legend: Sequence[tuple[str, str, str | Markup]]
    of_agents: bool = False


class Series(NamedTuple):
    """Values of one kind, one for each label; None is a gap. `kind` is a class of `css/plots.css`."""

    title: str
    kind: str
    values: Sequence[float | None]


def stacked_bars(
    label: str,
    labels: Sequence[str],
    series: Sequence[Series],
    unit: str = "",
    *,
    links: Sequence[str] = (),
    before: Series | None = None,
) -> Markup:
    """Return a bar for each label, of the values of all series on top of each other.

    Args:
        label: What is drawn.
        labels: Of the bars.
        series: Their values.
        unit: Of the values.
        links: Where each bar leads; none lead anywhere without.
        before: The sum of all series in the period before, as a line.
    """
    totals = [sum(each.values[at] or 0.0 for each in series) for at in range(len(labels))]
    scale = _Scale.of(max([*totals, *_known(before)], default=0.0))
    step = _WIDTH / max(len(labels), 1)
    wide = min(step * (1 - _GAP), _WIDEST)
    parts: list[Markup] = []
    for at in range(len(labels)):
        top = _HEIGHT - _BOTTOM
        for each in series:
            height = scale.height(each.values[at] or 0.0)
            if height <= 0:
                continue
            top -= height
            parts.append(
                _RECT.format(
                    kind=each.kind,
                    x=round((at + 0.5) * step - wide / 2, 2),
                    y=round(top, 2),
                    w=round(wide, 2),
                    h=round(height, 2),
                )
            )
    return _plot(_Frame(label, labels, unit, links), series, scale, parts, before)


def lines(
    label: str,
    labels: Sequence[str],
    series: Sequence[Series],
    unit: str = "",
    *,
    links: Sequence[str] = (),
    lowest: float = 0.0,
    before: Series | None = None,
) -> Markup:
    """Return a line for each series, with a dot for each value; for `links`, see `stacked_bars`.

    Args:
        lowest: The least value that there can be.
        before: The values of the first series in the period before, as a line without dots.
    """
    known = [value for each in series for value in _known(each)] + _known(before)
    scale = _Scale.of(max(known, default=0.0), lowest)
    parts: list[Markup] = []
    for each in series:
        parts += _line(each, scale)
        parts += [_DOT.format(kind=each.kind, x=x, y=y) for x, y in filter(None, _points(each, scale))]
    return _plot(_Frame(label, labels, unit, links, has_zeros=True), series, scale, parts, before)


def _known(series: Series | None) -> list[float]:
    return [] if series is None else [value for value in series.values if value is not None]


def _points(series: Series, scale: "_Scale") -> Iterator[tuple[float, float] | None]:
    """Yield where each value is drawn; None for a gap."""
    step = _WIDTH / max(len(series.values), 1)
    for at, value in enumerate(series.values):
        bottom = _HEIGHT - _BOTTOM
        yield None if value is None else (round((at + 0.5) * step, 2), round(bottom - scale.height(value), 2))


def _line(series: Series, scale: "_Scale") -> list[Markup]:
    """Return the line of a series, broken at its gaps; nothing without a value."""
    path, pen_is_down = "", False
    for point in _points(series, scale):
        if point is not None:
            path += f"{'L' if pen_is_down else 'M'}{point[0]} {point[1]}"
        pen_is_down = point is not None
    return [_LINE.format(kind=series.kind, d=path)] if path else []


class _Frame(NamedTuple):
    """What is around the values of a plot, as `stacked_bars` takes it.

    Attributes:
        has_zeros: Whether a value of zero is one, and no missing part of a bar.
    """

    label: str
    labels: Sequence[str]
    unit: str
    links: Sequence[str]
    has_zeros: bool = False


class _Scale(NamedTuple):
    """The axis of values.

    Attributes:
        highest: Of the values.
        step: Between two ticks: 1, 2 or 5 times a power of ten.
        top: The value at the upper edge, a whole number of steps.
        bottom: The value at the lower edge, likewise.
    """

    highest: float
    step: float
    top: float
    bottom: float = 0.0

    @classmethod
    def of(cls, highest: float, lowest: float = 0.0) -> "_Scale":
        """Return the axis that values up to this one fit on, with few ticks."""
        span = max(highest, 0.0) - lowest
        if span <= 0:
            return cls(0.0, 1.0, 1.0)
        power = 10.0 ** floor(log10(span / _MOST_TICKS))
        step = next(power * times for times in (1, 2, 5, 10) if span / (power * times) <= _MOST_TICKS)
        return cls(highest, step, step * ceil(max(highest, 0.0) / step - 1e-9), step * floor(lowest / step + 1e-9))

    def height(self, value: float) -> float:
        """Return how high a value is drawn."""
        return (value - self.bottom) / (self.top - self.bottom) * (_HEIGHT - _TOP - _BOTTOM)

    def ticks(self) -> Iterator[float]:
        """Yield the values that have a line, from the lowest on; only zero if there are none."""
        has_values = self.highest > 0 or self.bottom < 0
        for number in range(round((self.top - self.bottom) / self.step) + 1 if has_values else 1):
            yield self.bottom + number * self.step


def _plot(
    frame: _Frame, series: Sequence[Series], scale: _Scale, inside: Sequence[Markup], before: Series | None
) -> Markup:
    labels, unit = frame.labels, frame.unit
    step = _WIDTH / max(len(labels), 1)
    grid: list[Markup] = []
    for tick in scale.ticks():
        y = round(_HEIGHT - _BOTTOM - scale.height(tick), 2)
        grid.append(_GRID.format(width=_WIDTH, y=y))
        if tick:
            words = f"{_short(tick)} {unit}".strip() if tick == scale.top else _short(tick)
            grid.append(_TEXT.format(x=0, y=y - 3, anchor="start", text=words))
    every = max(-(-len(labels) // _MAX_LABELS), 1)
    names = [_name(round((at + 0.5) * step, 1), labels[at]) for at in range(0, len(labels), every)]
    past = [] if before is None else _line(before, scale)
    # From the top to the bottom, as they are drawn, and then the period before.
    shown = [*reversed(series), *([] if before is None else [before])]
    columns = [_column(frame, at, shown) for at in range(len(labels))]
    return _PLOT.format(
        width=_WIDTH,
        height=_HEIGHT,
        label=f"{frame.label}, at most {f'{_short(scale.highest)} {unit}'.strip()}",
        inside=Markup("").join([*grid, *inside, *past, *names, *columns]),
    )


def _column(frame: _Frame, at: int, series: Sequence[Series]) -> Markup:
    """Return the area of a column: its name and its values in words, one a line, with the class of each."""
    values = [(each, value) for each in series if (value := each.values[at]) is not None]
    found = [(each, value) for each, value in values if value > 0 or frame.has_zeros]
    words = [f"{_with_unit(value, frame.unit, each.title)} {each.title}" for each, value in found] or ["nothing"]
    width = _WIDTH / len(frame.labels)
    inside = _COLUMN.format(
        x=round(at * width, 2),
        w=round(width, 2),
        h=_HEIGHT,
        middle=round((at + 0.5) * width, 2),
        top=_TOP / 2,
        bottom=_HEIGHT - _BOTTOM,
        title="\n".join([frame.labels[at], *words]),
    )
    form, href = (_LINK, frame.links[at]) if frame.links else (_AT, "")
    return form.format(
        href=href,
        tab=0 if at == len(frame.labels) - 1 else -1,
        label=f"{frame.labels[at]}: {', '.join(words)}",
        kinds=" ".join(each.kind for each, _ in found),
        inside=inside,
    )


def _with_unit(value: float, unit: str, title: str) -> str:
    return f"{_short(value)} {unit}" if unit == "s" and title != unit else _short(value)


def _name(x: float, text: str) -> Markup:
    """Return a label below the plot, within its width."""
    anchor = "start" if x < _LABEL_WIDTH / 2 else "end" if x > _WIDTH - _LABEL_WIDTH / 2 else "middle"
    at = {"start": 0.0, "middle": x, "end": _WIDTH}[anchor]
    return _TEXT.format(x=at, y=_HEIGHT - 5, anchor=anchor, text=text)


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.3g}M"
    if value >= 1_000:
        return f"{value / 1_000:.3g}k"
    return f"{value:.3g}"
