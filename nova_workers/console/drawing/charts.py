"""Plots as SVG, made on the server: bars over time, stacked, with their values as titles and as a table for readers."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

__all__ = ["Series", "stacked_bars"]

_WIDTH, _HEIGHT, _TOP, _BOTTOM = 600.0, 140.0, 16.0, 20.0
_GAP = 0.2
"""Between two bars, as a part of their width."""
_MAX_LABELS = 8
_RECT = Markup('<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}"><title>{title}</title></rect>')
_TEXT = Markup('<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')
_GRID = Markup('<line class="grid" x1="0" x2="{width}" y1="{y}" y2="{y}"/>')
_PLOT = Markup('<svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{inside}</svg>')


class Series(NamedTuple):
    """Values of one kind, one for each label; `kind` is a class of `css/plots.css`."""

    title: str
    kind: str
    values: Sequence[float]


def stacked_bars(label: str, labels: Sequence[str], series: Sequence[Series], unit: str = "") -> Markup:
    """Return a bar for each label, of the values of all series on top of each other."""
    totals = [sum(each.values[at] for each in series) for at in range(len(labels))]
    highest = max(totals, default=0.0) or 1.0
    room = _HEIGHT - _TOP - _BOTTOM
    step = _WIDTH / max(len(labels), 1)
    parts = [_GRID.format(width=_WIDTH, y=_TOP), _GRID.format(width=_WIDTH, y=_HEIGHT - _BOTTOM)]
    parts.append(
        _TEXT.format(x=0, y=_TOP - 4, anchor="start", text=f"{_short(max(totals, default=0.0))} {unit}".strip())
    )
    for at, name in enumerate(labels):
        top = _HEIGHT - _BOTTOM
        for each in series:
            height = each.values[at] / highest * room
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
                    title=f"{name}: {_short(each.values[at])} {each.title}",
                )
            )
    every = max(-(-len(labels) // _MAX_LABELS), 1)
    parts += [
        _TEXT.format(x=round((at + 0.5) * step, 1), y=_HEIGHT - 5, anchor="middle", text=labels[at])
        for at in range(0, len(labels), every)
    ]
    return _PLOT.format(width=_WIDTH, height=_HEIGHT, label=label, inside=Markup("").join(parts))


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:.3g}M"
    if value >= 1_000:
        return f"{value / 1_000:.3g}k"
    return f"{value:.3g}"
