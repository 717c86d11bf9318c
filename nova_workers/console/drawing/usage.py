"""Usage in plots: cost and tokens by day or week, beside the period before."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from markupsafe import Markup

from nova_workers.console.drawing.charts import Plot, Series, stacked_bars
from nova_workers.console.formats import tokens, usd
from nova_workers.contracts.http.usage_report import UsageReport, UsageSum

_MOST_DAYS: Final = 100
"""A longer period is drawn by weeks: columns of days would be as thin as hairs."""
_WEEK: Final = 7

_Value = Callable[[UsageSum], float]


def begin_of_period_before(report: UsageReport) -> datetime:
    """Return the midnight that is as many days before a report's first day as the report has."""
    zone = ZoneInfo(report.timezone)
    first = report.since.astimezone(zone).date()
    return datetime.combine(first - timedelta(days=len(_days(report))), time(), zone)


def plots_of(report: UsageReport, before: UsageReport) -> list[Plot]:
    """Return the plots of a report by day.

    Args:
        report: Of whole days, of which the last has not ended.
        before: The same for the period before it.
    """
    days, zone = _days(report), ZoneInfo(report.timezone)
    size = 1 if len(days) <= _MOST_DAYS else _WEEK
    columns, past = list(_columns(report, days, size)), list(_columns(before, _days(before), size))
    begins = days[::size]
    labels = [f"{day:%m-%d}" for day in begins]
    links = [_runs_of(day, size, zone) for day in begins]
    unit = "by day" if size == 1 else "by week"

    def bars(title: str, name: str, shown: Callable[[float], str | Markup], *parts: tuple[str, str, _Value]) -> Plot:
        series = [Series(part, kind, [_sum(column, value) for column in columns]) for part, kind, value in parts]
        earlier = [sum(_sum(column, value) for _, _, value in parts) for column in past]
        known = Series("the period before", "before", _fitted(earlier, len(labels))) if any(earlier) else None
        drawn = stacked_bars(f"{title} {unit}", labels, series, name, links=links, before=known)
        all_ = [*series, *([] if known is None else [known])]
        legend = [(each.kind, each.title, shown(sum(value or 0.0 for value in each.values))) for each in all_]
        return Plot(f"{title} {unit}", drawn, legend)

    return [
        bars("Cost", "USD", usd, ("USD", "main", lambda day: day.cost_usd or 0.0)),
        bars(
            "Tokens",
            "tokens",
            lambda count: tokens(round(count)),
            ("input", "main", lambda day: float(day.input_tokens)),
            ("output", "second", lambda day: float(day.output_tokens)),
        ),
    ]


def _days(report: UsageReport) -> list[date]:
    """Return the days of a report, also those without usage."""
    zone = ZoneInfo(report.timezone)
    first = report.since.astimezone(zone).date()
    last = (report.until - timedelta(microseconds=1)).astimezone(zone).date()
    return [first + timedelta(days=day) for day in range((last - first).days + 1)]


def _columns(report: UsageReport, days: Sequence[date], size: int) -> Iterator[list[UsageSum]]:
    """Yield the sums of each `size` days."""
    known = {group.key: group for group in report.groups}
    for at in range(0, len(days), size):
        keys = [day.isoformat() for day in days[at : at + size]]
        yield [known[key] for key in keys if key in known]


def _fitted(values: Sequence[float], length: int) -> list[float | None]:
    return [*values[:length], *[None] * (length - len(values))]


def _sum(groups: Sequence[UsageSum], value: _Value) -> float:
    return sum(value(group) for group in groups)


def _runs_of(day: date, days: int, zone: ZoneInfo) -> str:
    """Return the address of the runs that were submitted on a day, or on several from it on."""
    since, until = (datetime.combine(each, time(), zone) for each in (day, day + timedelta(days=days)))
    return f"/runs?{urlencode({'since': since.isoformat(), 'until': until.isoformat()})}"
