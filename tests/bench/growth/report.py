"""The tables of measurements, for the terminal and for the documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from tests.bench.growth.costs import Axis, Cost, Operation
from tests.bench.machine import Machine

_BEGIN, _END = "<!-- growth output -->", "<!-- end of growth output -->"
_TIMES = "×"  # noqa: RUF001 - a factor is written so


@dataclass(frozen=True, slots=True)
class Measured:
    """One axis, and how it was measured.

    Attributes:
        repeats: How often each operation was measured at each size.
    """

    axis: Axis
    machine: Machine
    began_at: datetime
    took_s: float
    repeats: int

    @property
    def grown(self) -> list[str]:
        """The operations whose cost grew without a stated reason."""
        return [each.name for each in self.axis.rows if not each.grows and not self.axis.is_flat(each)]


MEASURED: Final = TypeAdapter(Measured)
"""As JSON in a file."""


def to_markdown(measured: Sequence[Measured]) -> str:
    """Return a section for each axis: its table, and the reasons of what grows below it."""
    sections = [
        "\n".join((f"### {each.axis.what[0].upper()}{each.axis.what[1:]}", "", *_table(each.axis), "", _caption(each)))
        for each in measured
    ]
    return "\n\n".join(sections) + "\n"


def _caption(measured: Measured) -> str:
    machine = measured.machine
    return (
        f"{measured.began_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {machine.cores} cores of {machine.cpu}, "
        f"{machine.memory_gb:g} GB, {machine.system}, Python {machine.python}; load {machine.load_1m:.1f} at the "
        f"start; {measured.repeats} times each, {measured.took_s:.0f} s with the filling."
    )


def _table(axis: Axis) -> list[str]:
    lines = [
        f"| operation | {' | '.join(f'{size:,}' for size in axis.sizes)} | least cost |",
        f"| --- | {' | '.join('---:' for _ in axis.sizes)} | --- |",
    ]
    notes: list[str] = []
    for operation, costs in axis.rows.items():
        unit = "" if operation.unit == "ms" else f", {operation.unit}"
        cells = " | ".join(_cell(costs[size]) for size in axis.sizes)
        lines.append(f"| {operation.name}{unit} | {cells} | {_verdict(axis, operation)} |")
        if operation.grows and not axis.is_flat(operation):
            notes.append(f"- {operation.name}: {operation.grows}")
    return [*lines, "", *notes] if notes else lines


def _cell(cost: Cost) -> str:
    number, least = (f"{value:.3g}" if value < 1_000 else f"{value:,.0f}" for value in (cost.value, cost.least))
    return number if number == least else f"{number} ({least})"


def _verdict(axis: Axis, operation: Operation) -> str:
    return "flat" if axis.is_flat(operation) else f"{axis.factor(operation):.2g} {_TIMES}"


def write_page(page: Path, measured: Sequence[Measured]) -> None:
    """Replace what a page has between the marks.

    Raises:
        ValueError: The page has no marks.
    """
    text = page.read_text("utf-8")
    block = f"{_BEGIN}\n\n{to_markdown(measured)}\n{_END}"
    new, count = re.subn(f"{_BEGIN}.*?{_END}", lambda _: block, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{page} needs one {_BEGIN} and one {_END} after it; it has {count} such pairs.")
    page.write_text(new, "utf-8")
