"""What a soak found: for the terminal, as Markdown for the documents, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import orjson
from rich.console import Console
from rich.table import Table

from tests.bench.machine import Machine
from tests.soak.series import Series, Verdict, sparkline


@dataclass(frozen=True, slots=True)
class Judged:
    """A series and its verdict; None if it has too few samples, as a table has that grew late."""

    series: Series
    verdict: Verdict | None

    @property
    def ok(self) -> bool:
        """Whether it is flat, or need not be."""
        return not self.series.judged or self.verdict is None or self.verdict.flat

    @property
    def drawing(self) -> str:
        """Its values over time."""
        return sparkline(self.series.values, width=24)

    @property
    def word(self) -> str:
        """The verdict in a word."""
        if self.verdict is None:
            return "too few samples"
        if not self.series.judged:
            return "grows" if self.verdict.growth > 0 else "shrinks"
        return "flat" if self.verdict.flat else "NOT FLAT"


@dataclass(frozen=True, slots=True)
class Report:
    """One soak.

    Attributes:
        capacity: Whole turns a second that the fleet took at most.
        rate: Turns a second of the soak.
        warm_up_s: Samples before are shown and not judged.
        tolerance: Permitted growth over the rest, as a share of the level.
        accepted: Rows of runs in the ledger.
        open_runs: Those that have not ended when all requests are answered.
    """

    machine: Machine
    began_at: datetime
    seconds: float
    capacity: float
    rate: float
    warm_up_s: float
    tolerance: float
    sent: int
    left_out: int
    failed: dict[str, int]
    accepted: int
    open_runs: int
    judged: Sequence[Judged]

    @property
    def problems(self) -> list[str]:
        """What makes the exit status 1."""
        found = [f"{each.series.name} grew by {_amount(each.verdict)}" for each in self.judged if not each.ok]
        found += [f"{count} times: {what}" for what, count in self.failed.items()]
        if self.left_out:
            found.append(f"{self.left_out} arrivals found too many requests open: the fleet did not keep up")
        if self.open_runs:
            found.append(f"{self.open_runs} runs have not ended")
        if not any(each.series.judged and each.verdict for each in self.judged):
            found.append("no row has enough samples to be judged: let it run longer (MINUTES)")
        return found

    def heading(self) -> str:
        """Return what was measured, where."""
        machine = self.machine
        return (
            f"{self.began_at:%Y-%m-%d %H:%M} UTC, {machine.cores} cores of {machine.cpu}, {machine.memory_gb:.1f} GB; "
            f"{self.seconds / 60:.1f} minutes at {self.rate:.1f} turns a second; the fleet took {self.capacity:.1f} "
            "at most; "
            f"{self.sent:,} turns; judged after {self.warm_up_s:.0f} s; flat is growth of at most {self.tolerance:.0%} "
            "of the level, or what the row permits"
        )

    def print(self, console: Console) -> None:
        """Write it for people."""
        table = Table(title=self.heading(), title_justify="left", box=None, pad_edge=False, header_style="bold")
        for name in ("what", "over time", "level", "grew by", "may", "verdict"):
            table.add_column(name, no_wrap=True)
        for each in self.judged:
            level, grew, may = _cells(each)
            style = "" if each.ok else "bold red"
            table.add_row(each.series.name, each.drawing, level, grew, may, each.word, style=style)
        console.print(table)
        for problem in self.problems:
            console.print(f"✗ {problem}", style="red")
        console.print("flat" if not self.problems else "not flat", style="bold")

    def to_markdown(self) -> str:
        """Return it as a table of the documents."""
        rows = [
            f"| {each.series.name} | {' | '.join(_cells(each))} | {each.word} | `{each.drawing}` |"
            for each in self.judged
        ]
        head = "| what | level | grew by | may | verdict | over time |\n| --- | --- | --- | --- | --- | --- |"
        problems = "".join(f"\n- {problem}" for problem in self.problems)
        return f"{self.heading()}.\n\n{head}\n" + "\n".join(rows) + f"\n{problems}\n"

    def to_json(self) -> bytes:
        """Return all figures and samples."""
        plain = asdict(self) | {"problems": self.problems}
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2)


def _cells(each: Judged) -> tuple[str, str, str]:
    verdict, unit = each.verdict, each.series.unit
    if verdict is None:
        return ("", "", "")
    may = _number(verdict.permitted) if each.series.judged else ""
    return (f"{_number(verdict.level)} {unit}".strip(), _amount(verdict), may)


def _amount(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    share = f" ({verdict.growth / verdict.level:+.1%})" if verdict.level else ""
    return f"{'+' if verdict.growth >= 0 else '-'}{_number(abs(verdict.growth))}{share}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
