"""`nova usage`: tokens and cost by day, agent or model."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.chart import BAR_CELLS, bar
from nova_workers.cli.terminal.output import Output, money
from nova_workers.contracts.http.usage_report import MAX_USAGE_DAYS, UsageGrouping, UsageReport, UsageSum

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_MIN_BAR_CELLS = 8
_MAX_BAR_CELLS = 60
_OTHER_CELLS = 64
"""Width of the other columns, with room for an id of usual length."""


@remote(app, "usage")
async def usage(
    session: Session,
    by: Annotated[UsageGrouping, typer.Option(help="What to sum up by.")] = "day",
    days: Annotated[
        int, typer.Option(min=1, max=MAX_USAGE_DAYS, help="How many days of the fleet's time zone, with today.")
    ] = 14,
) -> None:
    """Show tokens and cost by day, agent or model.

    The bars are of cost, or of tokens where nothing has a known cost.
    """
    session.out.write(await session.client.usage.report(by, days=days), show_report)


def show_report(out: Output, report: UsageReport) -> None:
    """Write a report as a table with bars."""
    if not report.groups:
        out.note(f"Nothing was used since {report.since:%Y-%m-%d} ({report.timezone}).")
        return
    priced = bool(report.total.cost_usd)
    most = max(_size(group, priced=priced) for group in report.groups)
    cells = bar_cells(out.width)
    # Judgements of models belong to no agent.
    unnamed = "no agent" if report.group_by == "agent" else "unknown"
    out.table(
        (report.group_by, "cost" if priced else "tokens", "", "in", "cached", "out", "runs"),
        [_row(group, group.key or unnamed, bar(_size(group, priced=priced), most, cells)) for group in report.groups]
        + [_row(report.total, "all", " " * cells)],
    )
    if report.groups_total > len(report.groups):
        out.note(f"{report.groups_total - len(report.groups)} more are not shown; `all` has them.")
    if report.total.unpriced:
        out.note(
            f"The cost of {report.total.unpriced} runs and compactions is not known: NOVA_MODEL__PRICES names prices.",
            "yellow",
        )


def bar_cells(width: int | None) -> int:
    """Return how long bars are on a terminal of `width` columns; None is a pipe."""
    if width is None:
        return BAR_CELLS
    return max(_MIN_BAR_CELLS, min(_MAX_BAR_CELLS, width - _OTHER_CELLS))


def _size(group: UsageSum, *, priced: bool) -> float:
    return (group.cost_usd or 0.0) if priced else _read(group) + group.output_tokens


def _read(group: UsageSum) -> int:
    return group.input_tokens + group.cache_read_tokens + group.cache_write_tokens


def _row(group: UsageSum, name: str, drawn: str) -> tuple[str, ...]:
    cost = money(group.cost_usd) if group.cost_usd is not None else "" if not group.unpriced else "?"
    return (
        name,
        drawn,
        cost + ("+" if group.cost_usd is not None and group.unpriced else ""),
        _short(_read(group)),
        _short(group.cache_read_tokens),
        _short(group.output_tokens),
        str(group.runs),
    )


def _short(tokens: int) -> str:
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}{unit}"
    return str(tokens)
