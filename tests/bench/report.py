"""The table, for the terminal, for the docs and for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.bench.figures import Breakdown, Figure, Result
from tests.bench.machine import Machine

_RATIO = "×"  # noqa: RUF001 - a ratio is written so
_BESIDE = f"{_RATIO} bare Celery"
_NO_NUMBER = "·"
_NOISE = "cores_used_by_others"


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one run of the bench."""

    machine: Machine
    began_at: datetime
    took_s: float
    sizes: str
    results: Sequence[Result]

    @property
    def missed(self) -> tuple[str, ...]:
        """Rows that miss a bound."""
        return tuple(result.row for result in self.results if result.met is False)

    def to_json(self) -> bytes:
        """Return all figures with verdicts, and the details that no table shows."""
        document: dict[str, Any] = {
            "began_at": self.began_at.astimezone(UTC).isoformat(timespec="seconds"),
            "took_s": round(self.took_s, 1),
            "sizes": self.sizes,
            "machine": asdict(self.machine),
            "rows": [{**asdict(result), "met": result.met} for result in self.results],
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def to_markdown(self) -> str:
        """Return the table with its footnotes, in the form of the documentation page."""
        lines = [
            self._caption(),
            "",
            f"| what | bound | measured | met | {_BESIDE} |",
            "| --- | --- | --- | :-: | --- |",
        ]
        for number, result in enumerate(self.results, 1):
            cells = (f"{result.what} [{number}]", *_cells(result))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines += ["", *(f"{mark} {note}  " for mark, note in self._notes())]
        for mark, breakdown in self._breakdowns():
            lines += ["", f"{mark}", ""]
            lines += [f"| {' | '.join(breakdown.columns)} |", f"|{' --- |' * len(breakdown.columns)}"]
            lines += [f"| {' | '.join(line)} |" for line in breakdown.lines]
        return "\n".join(lines) + "\n"

    def print(self, console: Console) -> None:
        """Print the table with its footnotes."""
        table = Table(title="What the fleet does on this machine", caption=escape(self._caption()), show_lines=True)
        table.add_column("what", ratio=4)
        table.add_column("bound", ratio=2)
        table.add_column("measured", ratio=4, style="bold")
        table.add_column("met", justify="center", no_wrap=True)
        table.add_column(_BESIDE, ratio=2)
        for number, result in enumerate(self.results, 1):
            style = "red" if result.met is False else None
            table.add_row(escape(f"{result.what} [{number}]"), *map(escape, _cells(result)), style=style)
        console.print(table)
        for mark, note in self._notes():
            console.print(escape(f"{mark} {note}"), style="dim")
        for mark, breakdown in self._breakdowns():
            steps = Table(*breakdown.columns, title=escape(mark))
            for line in breakdown.lines:
                steps.add_row(*map(escape, line))
            console.print(steps)

    def _notes(self) -> Iterable[tuple[str, str]]:
        for number, result in enumerate(self.results, 1):
            for note in result.notes:
                yield f"[{number}]", note

    def _breakdowns(self) -> Iterable[tuple[str, Breakdown]]:
        for number, result in enumerate(self.results, 1):
            if result.breakdown is not None:
                yield f"{result.what} [{number}]", result.breakdown

    def _caption(self) -> str:
        machine = self.machine
        noise = [result.details[_NOISE] for result in self.results if _NOISE in result.details]
        others = f"others kept {sum(noise) / len(noise):.1f} cores busy meanwhile; " if noise else ""
        return (
            f"{self.began_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {machine.cores} cores of {machine.cpu}, "
            f"{machine.memory_gb:g} GB, {machine.system}, Python {machine.python}; everything on this machine, the "
            f"load generator too; {others}{self.sizes} sizes, {self.took_s:.0f} s."
        )


def _cells(result: Result) -> tuple[str, str, str, str]:
    met = {None: _NO_NUMBER, True: "✓", False: "✗"}[result.met]
    bounds = " · ".join(_bound(figure) for figure in result.figures if figure.bound is not None)
    measured = " · ".join(_number(figure.label, figure.value, figure.unit) for figure in result.figures)
    ratios = " · ".join(
        _number(figure.label, figure.ratio, _RATIO) for figure in result.figures if figure.ratio is not None
    )
    return bounds or _NO_NUMBER, measured, met, ratios or _NO_NUMBER


def _bound(figure: Figure) -> str:
    assert figure.bound is not None
    sign = "≥" if figure.at_least else "≤"
    return f"{figure.label} {sign} {figure.bound:g} {figure.unit}".strip()


def _number(label: str, value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 100 or float(value).is_integer() else 2 if abs(value) < 10 else 1
    return f"{label} {value:.{digits}f} {unit}".strip()
