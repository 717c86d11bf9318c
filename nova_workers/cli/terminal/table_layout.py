"""Which columns of a table fit a terminal, and how wide each is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

Heading = str | tuple[str, Literal["text", "fold", "spare"]]
"""A table's column: its heading, and what happens to it if space is short. ``text`` is cut with an ellipsis,
``fold`` continues in further lines, ``spare`` is left out; every other is shown whole."""

_LEAST = {"text": 12, "fold": 32}
"""Minimum cells of a column that shrinks. An id and a blank fit into 32, so that folding does not break one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is drawn.

    Attributes:
        widths: The width in cells of each column that is shown, by its place.
        left_out: The headings of the others; a column of bars has none.
    """

    widths: dict[int, int]
    left_out: tuple[str, ...]


def lay_out(columns: Sequence[Heading], rows: Iterable[Sequence[str]], *, width: int, gap: int) -> Layout | None:
    """Fit a table into `width` cells with `gap` between columns; None if even the required columns do not fit.

    Texts become shorter first. Then spare columns are left out: empty ones before all others, else the last first.
    """
    headings = [column if isinstance(column, str) else column[0] for column in columns]
    kinds = ["whole" if isinstance(column, str) else column[1] for column in columns]
    cells = list(zip(headings, *rows, strict=True))
    natural = [max(map(cell_len, column)) for column in cells]
    least = [min(full, _LEAST.get(kind, full)) for full, kind in zip(natural, kinds, strict=True)]
    # The first column has no gap before it.
    room = width + gap - sum(least[at] + gap for at, kind in enumerate(kinds) if kind != "spare")
    if room < 0:
        return None
    kept = {at for at, kind in enumerate(kinds) if kind != "spare"}
    spare = [at for at, kind in enumerate(kinds) if kind == "spare"]
    for at in sorted(spare, key=lambda at: not any(cells[at][1:])):
        if least[at] + gap <= room:
            kept.add(at)
            room -= least[at] + gap
    widths = {at: least[at] for at in sorted(kept)}
    _widen(widths, natural, room)
    return Layout(widths, tuple(headings[at] for at in spare if at not in kept and headings[at]))


def _widen(widths: dict[int, int], natural: Sequence[int], room: int) -> None:
    """Share `room` among the columns that are cut, as evenly as they can use it."""
    while room and (cut := [at for at in widths if widths[at] < natural[at]]):
        share = max(room // len(cut), 1)
        for at in cut:
            more = min(share, natural[at] - widths[at], room)
            widths[at] += more
            room -= more
