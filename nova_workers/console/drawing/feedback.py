"""Feedback on an agent in plots: by version, oldest first."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from nova_workers.console.drawing.charts import Plot, Series, lines, stacked_bars
from nova_workers.contracts.http.feedback import RATING, FeedbackFigures, FeedbackReport

_MOST_VERSIONS: Final = 20
"""The number of versions that are drawn: the newest that have feedback."""
_MOST_NAMES: Final = 5
"""The number of names that are drawn, as many as there are colours: those with the most feedback."""


def plots_of(report: FeedbackReport) -> list[Plot]:
    """Return a plot of thumbs and one of mean scores by name; only those that have something to show."""
    versions = sorted({one.agent_version for one in report.figures if one.agent_version is not None})[-_MOST_VERSIONS:]
    plots = [_thumbs(report, versions), _scores(report, versions)]
    return [plot for plot in plots if plot.legend]


def _thumbs(report: FeedbackReport, versions: Sequence[int]) -> Plot:
    found = _by_version(report, RATING)
    series = [
        Series(
            title, kind, [float(getattr(found[version], title)) if version in found else 0.0 for version in versions]
        )
        for title, kind in (("up", "good"), ("down", "bad"))
    ]
    legend = [(each.kind, f"rated {each.title}", f"{sum(value or 0 for value in each.values):,.0f}") for each in series]
    links = [f"/runs?{urlencode({'agent': report.agent_id, 'version': version})}" for version in versions]
    title = "Ratings by version"
    return Plot(title, stacked_bars(title, _labels(versions), series, "ratings", links=links), legend if found else [])


def _scores(report: FeedbackReport, versions: Sequence[int]) -> Plot:
    counts: dict[str, int] = {}
    for one in report.figures:
        if one.mean_score is not None:
            counts[one.name] = counts.get(one.name, 0) + one.count
    names = sorted(counts, key=lambda name: (-counts[name], name))[:_MOST_NAMES]
    series: list[Series] = []
    for place, name in enumerate(names):
        found = _by_version(report, name)
        values = [found[version].mean_score if version in found else None for version in versions]
        series.append(Series(name, f"c{place}", values))
    legend = [(each.kind, each.title, _newest(each)) for each in series if any(v is not None for v in each.values)]
    title = "Mean score by version"
    return Plot(title, lines(title, _labels(versions), series, lowest=-1.0), legend)


def _by_version(report: FeedbackReport, name: str) -> dict[int, FeedbackFigures]:
    return {one.agent_version: one for one in report.figures if one.name == name and one.agent_version is not None}


def _labels(versions: Sequence[int]) -> list[str]:
    return [f"v{version}" for version in versions]


def _newest(series: Series) -> str:
    known = [value for value in series.values if value is not None]
    return f"{known[-1]:+.2f}"
