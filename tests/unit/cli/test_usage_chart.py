"""The chart of `nova usage`: it fits the terminal, and needs no colour."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime

import pytest
from inline_snapshot import snapshot

from nova_workers.cli.records.usage import bar_cells, show_report
from nova_workers.cli.terminal.output import Output
from nova_workers.contracts.http.usage_report import UsageReport, UsageSum

_STYLE = re.compile(r"\x1b\[[\d;]*m")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        """Say that it is one."""
        return True


def _report(*groups: UsageSum, total: UsageSum, groups_total: int | None = None) -> UsageReport:
    return UsageReport(
        group_by="agent",
        since=datetime(2026, 3, 1, tzinfo=UTC),
        until=datetime(2026, 3, 31, tzinfo=UTC),
        timezone="UTC",
        groups=list(groups),
        groups_total=len(groups) if groups_total is None else groups_total,
        total=total,
    )


def _drawn(report: UsageReport, stdout: io.StringIO) -> tuple[list[str], str]:
    notes = io.StringIO()
    show_report(Output(json_mode=False, stdout=stdout, stderr=notes), report)
    plain = _STYLE.sub("", stdout.getvalue())
    return [line.rstrip() for line in plain.splitlines() if line.strip()], notes.getvalue()


NOVA = UsageSum(key="nova", runs=12, input_tokens=1_500, cache_read_tokens=2_000_000, output_tokens=900, cost_usd=1.5)
CLERK = UsageSum(key="clerk", runs=3, input_tokens=20, output_tokens=10, cost_usd=0.25, unpriced=2)
ALL = UsageSum(runs=15, input_tokens=1_520, cache_read_tokens=2_000_000, output_tokens=910, cost_usd=1.75, unpriced=2)


def test_the_chart_in_a_pipe() -> None:
    lines, notes = _drawn(_report(NOVA, CLERK, total=ALL, groups_total=5), io.StringIO())
    assert "\n".join(lines) == snapshot("""\
agent  cost                            in    cached  out  runs
nova   ████████████████████  $1.50     2.0M  2.0M    900  12
clerk  ███·················  $0.2500+  20    0       10   3
all                          $1.75+    2.0M  2.0M    910  15\
""")
    assert notes == snapshot("""\
3 more are not shown; `all` has them.
The cost of 2 runs and compactions is not known: NOVA_MODEL__PRICES names prices.
""")


def test_without_known_costs_the_bars_are_of_tokens() -> None:
    one = UsageSum(key="one", input_tokens=100, unpriced=1)
    two = UsageSum(key="two", input_tokens=50, unpriced=1)
    lines, _ = _drawn(_report(one, two, total=UsageSum(input_tokens=150, unpriced=2)), io.StringIO())
    assert "tokens" in lines[0]
    assert [line.count("█") for line in lines[1:]] == [20, 10, 0]


def test_an_empty_report_is_a_sentence() -> None:
    lines, notes = _drawn(_report(total=UsageSum()), io.StringIO())
    assert (lines, notes) == ([], "Nothing was used since 2026-03-01 (UTC).\n")


@pytest.mark.parametrize("columns", [60, 80, 120, 240])
def test_the_chart_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    lines, _ = _drawn(_report(NOVA, CLERK, total=ALL), _Terminal())
    assert max(map(len, lines)) <= columns
    assert any("█" in line for line in lines)


def test_bars_grow_with_the_terminal_within_bounds() -> None:
    assert [bar_cells(width) for width in (None, 40, 100, 1_000)] == [20, 8, 36, 60]


def test_a_group_key_cannot_control_the_terminal() -> None:
    hostile = UsageSum(key="x\x1b[2Jy", cost_usd=1)
    lines, _ = _drawn(_report(hostile, total=hostile), io.StringIO())
    assert "\x1b" not in "".join(lines)
