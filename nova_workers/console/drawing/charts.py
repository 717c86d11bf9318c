"""Plots as SVG, made on the server: stacked bars and lines over time, with the values as titles."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

_WIDTH, _HEIGHT, _TOP, _BOTTOM = 600.0, 140.0, 16.0, 20.0
_GAP = 0.2
"""Between two bars, as a part of their width."""
_MAX_LABELS, _LABEL_WIDTH = 8, 32.0
_RECT = Markup('<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}"><title>{title}</title></rect>')
_LINE = Markup('<path class="line {kind}" d="{d}"/>')
_DOT = Markup('<circle class="{kind}" cx="{x}" cy="{y}" r="2.5"><title>{title}</title></circle>')
_TEXT = Markup('<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')
_GRID = Markup('<line class="grid" x1="0" x2="{width}" y1="{y}" y2="{y}"/>')
_PLOT = Markup('<svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{inside}</svg>')


class Series(NamedTuple):
    """Values of one kind, one for each label; None is a gap. `kind` is a class of `css/plots.css`."""

    title: str
    kind: str
    values: Sequence[float | None]


def stacked_bars(label: str, labels: Sequence[str], series: Sequence[Series], unit: str = "") -> Markup:
    """Return a bar for each label, of the values of all series on top of each other."""
    totals = [sum(each.values[at] or 0.0 for each in series) for at in range(len(labels))]
    highest = max(totals, default=0.0)
    step = _WIDTH / max(len(labels), 1)
    parts: list[Markup] = []
    for at, name in enumerate(labels):
        top = _HEIGHT - _BOTTOM
        for each in series:
            value = each.values[at] or 0.0
            height = _height(value, highest)
            if height <= 0:
                continue
            top -= height
            parts.append(
                _RECT.format(
                    kind=each.kind,
                    x=round(at * step + step * _GAP / 2, 2),
                    y=round(top, 2),
                    w=round(step * (1 - _GAP), 2),
                    h=round(height, 2),
                    title=f"{name}: {_short(value)} {each.title}",
                )
            )
    return _plot(label, labels, highest, unit, parts)


def lines(label: str, labels: Sequence[str], series: Sequence[Series], unit: str = "") -> Markup:
    """Return a line for each series, with a dot for each value."""
    highest = max((value for each in series for value in each.values if value is not None), default=0.0)
    step = _WIDTH / max(len(labels), 1)
    parts: list[Markup] = []
    for each in series:
        path, dots, pen_is_down = "", list[Markup](), False
        for at, value in enumerate(each.values):
            if value is not None:
                x, y = round((at + 0.5) * step, 2), round(_HEIGHT - _BOTTOM - _height(value, highest), 2)
                path += f"{'L' if pen_is_down else 'M'}{x} {y}"
                title = f"{labels[at]}: {_short(value)} {unit} {each.title}"
                dots.append(_DOT.format(kind=each.kind, x=x, y=y, title=" ".join(title.split())))
            pen_is_down = value is not None
        parts += [_LINE.format(kind=each.kind, d=path), *dots] if path else []
    return _plot(label, labels, highest, unit, parts)


def _plot(label: str, labels: Sequence[str], highest: float, unit: str, inside: Sequence[Markup]) -> Markup:
    step = _WIDTH / max(len(labels), 1)
    most = f"{_short(highest)} {unit}".strip()
    frame = [_GRID.format(width=_WIDTH, y=_TOP), _GRID.format(width=_WIDTH, y=_HEIGHT - _BOTTOM)]
    frame.append(_TEXT.format(x=0, y=_TOP - 4, anchor="start", text=most))
    every = max(-(-len(labels) // _MAX_LABELS), 1)
    names = [_name(round((at + 0.5) * step, 1), labels[at]) for at in range(0, len(labels), every)]
    return _PLOT.format(
        width=_WIDTH,
        height=_HEIGHT,
        label=f"{label}, at most {most}",
        inside=Markup("").join([*frame, *inside, *names]),
    )


def _name(x: float, text: str) -> Markup:
    """Return a label below the plot, within its width."""
    anchor = "start" if x < _LABEL_WIDTH / 2 else "end" if x > _WIDTH - _LABEL_WIDTH / 2 else "middle"
    at = {"start": 0.0, "middle": x, "end": _WIDTH}[anchor]
    return _TEXT.format(x=at, y=_HEIGHT - 5, anchor=anchor, text=text)


def _height(value: float, highest: float) -> float:
    return value / (highest or 1.0) * (_HEIGHT - _TOP - _BOTTOM)


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.3g}M"
    if value >= 1_000:
        return f"{value / 1_000:.3g}k"
    return f"{value:.3g}"
