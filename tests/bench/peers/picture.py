"""Draws the figures of servers as bars, a panel a figure, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

_WIDTH, _LEFT, _BARS = 720, 210, 420
_BAR_HEIGHT, _PANEL_GAP, _HEAD = 22, 18, 26
_OURS, _OTHER = "#1f77b4", "#9aa5b1"
_STYLE = "font-family='system-ui, sans-serif' font-size='13' fill='#222'"


def draw(servers: Mapping[str, Mapping[str, float]]) -> str:
    """Return the picture. The first server is ours, and has another colour."""
    figures = tuple(next(iter(servers.values())))
    panel_height = _HEAD + len(servers) * _BAR_HEIGHT + _PANEL_GAP
    height = len(figures) * panel_height
    panels = "".join(
        f"<g transform='translate(0 {number * panel_height})'>{''.join(_panel(figure, servers))}</g>"
        for number, figure in enumerate(figures)
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' width='{_WIDTH}' height='{height}' "
        f"{_STYLE}><title>{escape(', '.join(servers))}, side by side</title>"
        f"<rect width='{_WIDTH}' height='{height}' fill='#fff'/>{panels}</svg>\n"
    )


def _panel(figure: str, servers: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    most = max(figures[figure] for figures in servers.values())
    yield f"<text x='8' y='18' font-weight='bold'>{escape(figure)}</text>"
    for number, (name, figures) in enumerate(servers.items()):
        y, width = _HEAD + number * _BAR_HEIGHT, figures[figure] / most * _BARS
        yield f"<text x='{_LEFT - 8}' y='{y + 14}' text-anchor='end'>{escape(name)}</text>"
        yield f"<rect x='{_LEFT}' y='{y + 2}' width='{width:.1f}' height='15' fill='{_OTHER if number else _OURS}'/>"
        yield f"<text x='{_LEFT + width + 6:.1f}' y='{y + 14}'>{figures[figure]:.1f}</text>"
