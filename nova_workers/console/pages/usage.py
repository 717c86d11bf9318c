"""Usage: tokens and cost by day, agent and model, as a plot, a table and CSV."""

import csv
import io
from typing import cast, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput
from nova_workers.console.drawing.usage import begin_of_period_before, plots_of
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import filter_of
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.usage_report import UsageGrouping, UsageReport, UsageSum

_PERIODS = (1, 7, 30, 90, 365)
_ROWS = 400
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is a formula to spreadsheets."""


async def show(request: Request) -> Response:
    """Show a report."""
    report, days = await _report(request)
    calls = client_of(request).usage
    by_day = report if report.group_by == "day" else await calls.report("day", days=days, limit=_ROWS)
    before = await calls.report("day", since=begin_of_period_before(report), until=report.since, limit=_ROWS)
    return render(
        request,
        "usage/show.html",
        report=report,
        days=days,
        periods=[(str(period), f"{period} days" if period > 1 else "today") for period in _PERIODS],
        groupings=get_args(UsageGrouping),
        plots=plots_of(by_day, before),
    )


async def download(request: Request) -> Response:
    """Return the report as CSV."""
    report, days = await _report(request)
    sheet = io.StringIO()
    writer = csv.writer(sheet)
    fields = list(UsageSum.model_fields)
    writer.writerow([report.group_by, *fields[1:]])
    for group in report.groups:
        row = group.model_dump()
        writer.writerow([_cell(row[field]) for field in fields])
    name = f"usage-by-{report.group_by}-{days}-days.csv"
    return Response(
        sheet.getvalue(),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def _report(request: Request) -> tuple[UsageReport, int]:
    given = filter_of(request, "days") or "30"
    if not given.isascii() or not given.isdigit():
        raise InvalidInput(f"{given!r} is not a number of days.", field="days", status=422)
    days = int(given[:6])
    grouping = cast(UsageGrouping, filter_of(request, "by") or "day")
    return await client_of(request).usage.report(grouping, days=days, limit=_ROWS), days


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


PAGE = PageModule(
    routes=(Route("/usage", show), Route("/usage.csv", download)),
    nav=(NavEntry("Account", "Usage", "/usage", "usage", key="u", scope="runs:read"),),
)
