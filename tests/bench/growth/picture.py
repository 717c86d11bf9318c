"""Draws the costs: a panel for each axis, both of its scales logarithmic, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from tests.bench.growth.costs import Axis

_COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
_COLUMNS = 2
_WIDTH, _HEIGHT = 460, 380
"""Of a panel."""
_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 66, 36, 360, 200
_LINE_HEIGHT = 15
_LEAST_MS, _MOST_MS = 0.1, 1_000.0
_STYLE = "font-family='system-ui, sans-serif' font-size='12' fill='#222'"


def draw(axes: Sequence[Axis]) -> str:
    """Return the picture, of the least cost at each size. Costs in other units than milliseconds are left out."""
    rows = math.ceil(len(axes) / _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT
    panels = "\n".join(
        f"<g transform='translate({number % _COLUMNS * _WIDTH} {number // _COLUMNS * _HEIGHT})'>"
        f"{''.join(_panel(axis))}</g>"
        for number, axis in enumerate(axes)
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"{_STYLE}><title>Cost of each operation in milliseconds by the size of what it works on</title>"
        f"<rect width='{width}' height='{height}' fill='#fff'/>\n{panels}\n</svg>\n"
    )


def _panel(axis: Axis) -> Iterator[str]:
    sizes = [math.log10(size) for size in axis.sizes]
    span = max(sizes[-1] - sizes[0], 1e-9)
    yield f"<text x='{_LEFT}' y='22' font-weight='bold'>{escape(axis.what)}</text>"
    for power in range(round(math.log10(_LEAST_MS)), round(math.log10(_MOST_MS)) + 1):
        y = _y(10.0**power)
        yield f"<line x1='{_LEFT}' x2='{_LEFT + _PLOT_WIDTH}' y1='{y:.1f}' y2='{y:.1f}' stroke='#ddd'/>"
        yield f"<text x='{_LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{10.0**power:g} ms</text>"
    for size, at in zip(axis.sizes, sizes, strict=True):
        x = _LEFT + (at - sizes[0]) / span * _PLOT_WIDTH
        yield f"<text x='{x:.1f}' y='{_TOP + _PLOT_HEIGHT + 18}' text-anchor='middle'>{size:,}</text>"
    drawn = [(operation, costs) for operation, costs in axis.rows.items() if operation.unit == "ms"]
    for number, (operation, costs) in enumerate(drawn):
        color = _COLORS[number % len(_COLORS)]
        points = [
            (_LEFT + (math.log10(size) - sizes[0]) / span * _PLOT_WIDTH, _y(cost.least)) for size, cost in costs.items()
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2'/>"
        yield from (f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3' fill='{color}'/>" for x, y in points)
        y = _TOP + _PLOT_HEIGHT + 38 + number * _LINE_HEIGHT
        yield f"<rect x='{_LEFT}' y='{y - 9}' width='10' height='10' fill='{color}'/>"
        yield f"<text x='{_LEFT + 16}' y='{y}'>{escape(operation.name)}</text>"


def _y(value_ms: float) -> float:
    clamped = min(max(value_ms, _LEAST_MS), _MOST_MS)
    share = math.log10(clamped / _LEAST_MS) / math.log10(_MOST_MS / _LEAST_MS)
    return _TOP + _PLOT_HEIGHT * (1 - share)
