"""Plots of what happened: in all, or by agent or model, beside the period before."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from markupsafe import Markup

from nova_workers.console.drawing.charts import Plot, Series, lines, stacked_bars
from nova_workers.console.formats import duration, tokens, usd
from nova_workers.console.names import agent_name
from nova_workers.contracts.http.overview.activity import ActivityBucket, ActivityView, BucketSize


class Period(NamedTuple):
    """A time that plots are over.

    Attributes:
        before: The time of the same length before it, in words.
        buckets: How many are as long as the period.
    """

    title: str
    before: str
    bucket: BucketSize
    buckets: int
    length: timedelta


PERIODS: Final[Mapping[str, Period]] = {
    "hour": Period("Last hour", "the hour before", "minute", 60, timedelta(hours=1)),
    "day": Period("Last day", "the day before", "hour", 24, timedelta(days=1)),
    "month": Period("Last 30 days", "the 30 days before", "day", 30, timedelta(days=30)),
}
"""The periods, by the word of the address."""
_MOST_KEYS = 5
"""Agents or models with a colour of their own: those with the most; the others are one."""
_OTHERS = "others"

_Value = Callable[[ActivityBucket], float | None]


class Past:
    """The period before the one that is shown, bucket by bucket."""

    def __init__(self, title: str, buckets: Sequence[ActivityBucket]) -> None:
        self._title = title
        self._buckets = buckets

    def series(self, value: _Value, of: str = "") -> Series | None:
        """Return a value's series; None if there was nothing."""
        values = [value(bucket) for bucket in self._buckets]
        return Series(f"{of} {self._title}".strip(), "before", values) if any(values) else None


def split(activity: ActivityView, period: Period) -> tuple[ActivityView, Past]:
    """Return the second half of activity over two periods, and the first: each bucket's is a period older."""
    buckets = activity.buckets
    shown = activity.model_copy(update={"since": activity.since + period.length, "buckets": buckets[period.buckets :]})
    return shown, Past(period.before, buckets[: max(len(buckets) - period.buckets, 0)])


def plots_of_all(activity: ActivityView, past: Past) -> list[Plot]:
    """Return the plots of all that happened, from activity without a grouping."""
    buckets, labels, unit = activity.buckets, _labels(activity), f"by {activity.bucket}"
    links = [_runs_of(bucket) for bucket in buckets]

    def bars(
        title: str, shown: Callable[[float], str | Markup], name: str, total: _Value, *parts: tuple[str, str, _Value]
    ) -> Plot:
        full, before = f"{title}, {unit}", past.series(total)
        series = [Series(part, kind, [value(bucket) for bucket in buckets]) for part, kind, value in parts]
        legend = [(each.kind, each.title, shown(_sum(each.values))) for each in _all(series, before)]
        return Plot(full, stacked_bars(full, labels, series, name, links=links, before=before), legend)

    spread = [
        Series("median", "main", [bucket.duration_s.p50 if bucket.duration_s else None for bucket in buckets]),
        Series("95 of 100", "second", [bucket.duration_s.p95 if bucket.duration_s else None for bucket in buckets]),
    ]
    took, median_before = f"Time of a run, {unit}", past.series(_median, "median")
    return [
        bars(
            "Runs that ended",
            _number,
            "runs",
            lambda bucket: _succeeded(bucket) + _failed(bucket),
            ("succeeded", "good", _succeeded),
            ("failed", "bad", _failed),
        ),
        Plot(
            took,
            lines(took, labels, spread, "s", links=[f"{link}&sort=duration" for link in links], before=median_before),
            [(each.kind, each.title, _highest(each)) for each in _all(spread, median_before)],
        ),
        bars(
            "Tokens",
            tokens_in_words,
            "tokens",
            _all_tokens,
            ("input", "main", lambda bucket: float(bucket.input_tokens)),
            ("output", "second", lambda bucket: float(bucket.output_tokens)),
        ),
        bars("Cost", usd, "USD", _cost, ("USD", "main", _cost)),
    ]


def plots_by_key(activity: ActivityView, periods: Sequence[ActivityBucket], past: Past) -> list[Plot]:
    """Return the plots of each agent or model.

    Args:
        activity: With a grouping: only buckets in which something happened.
        periods: All buckets of the same time, without the grouping.
        past: The period before, of all together: medians of agents have no sum.
    """
    links = [_runs_of(bucket) for bucket in periods]
    at = {bucket.since: place for place, bucket in enumerate(periods)}
    keys = _largest(activity.buckets)
    of_agents = activity.group_by == "agent"
    title = agent_name if of_agents else str
    labels, unit = _labels(activity, periods), f"by {activity.bucket} and {activity.group_by}"

    def series(value: _Value, *, with_others: bool) -> list[Series]:
        rows: dict[str, list[float | None]] = {}
        for bucket in activity.buckets:
            name = _name(bucket) if _name(bucket) in keys else _OTHERS
            found = value(bucket)
            if bucket.since in at and found is not None and (with_others or name != _OTHERS):
                row = rows.setdefault(name, [None] * len(periods))
                row[at[bucket.since]] = (row[at[bucket.since]] or 0.0) + found
        order = [*keys, _OTHERS]
        found = (key for key in order if any(rows.get(key, ())))
        return [Series(title(key), f"c{order.index(key)}", rows[key]) for key in found]

    def bars(title: str, unit_name: str, shown: Callable[[float], str | Markup], value: _Value) -> Plot:
        made, full, before = series(value, with_others=True), f"{title}, {unit}", past.series(value)
        legend = [(each.kind, each.title, shown(_sum(each.values))) for each in _all(made, before)]
        return Plot(full, stacked_bars(full, labels, made, unit_name, links=links, before=before), legend, of_agents)

    medians, took = series(_median, with_others=False), f"Median time of a run, {unit}"
    done = (
        bars("Model calls", "calls", _number, lambda bucket: float(bucket.model_calls))
        if activity.group_by == "model"
        else bars("Runs that ended", "runs", _number, _ended)
    )
    return [
        done,
        Plot(
            took,
            lines(took, labels, medians, "s", links=links),
            [(each.kind, each.title, _highest(each)) for each in medians],
            of_agents,
        ),
        bars("Tokens", "tokens", tokens_in_words, _all_tokens),
        bars("Cost", "USD", usd, _cost),
    ]


def tokens_in_words(count: float) -> str | Markup:
    """Return a number of tokens, rounded."""
    return tokens(round(count))


def _runs_of(bucket: ActivityBucket) -> str:
    """Return the address of the runs that were submitted in a bucket's time."""
    return f"/runs?{urlencode({'since': bucket.since.isoformat(), 'until': bucket.until.isoformat()})}"


def _largest(buckets: Iterable[ActivityBucket]) -> list[str]:
    """Return the names with the most tokens, and with the most runs among those without any."""
    sizes: dict[str, tuple[float, float]] = {}
    for bucket in buckets:
        size, runs = sizes.get(_name(bucket), (0.0, 0.0))
        sizes[_name(bucket)] = (size + _all_tokens(bucket), runs + _ended(bucket))
    return sorted(sizes, key=lambda name: (*(-size for size in sizes[name]), name))[:_MOST_KEYS]


def _labels(activity: ActivityView, periods: Sequence[ActivityBucket] | None = None) -> list[str]:
    zone, form = ZoneInfo(activity.timezone), "%m-%d" if activity.bucket == "day" else "%H:%M"

    def label(at: datetime) -> str:
        return f"{at.astimezone(zone):{form}}"

    return [label(bucket.since) for bucket in (activity.buckets if periods is None else periods)]


def _name(bucket: ActivityBucket) -> str:
    return bucket.key or "unknown"


def _all(series: Sequence[Series], before: Series | None) -> list[Series]:
    return [*series, *([] if before is None else [before])]


def _succeeded(bucket: ActivityBucket) -> float:
    return float((bucket.ended or {}).get("succeeded", 0))


def _failed(bucket: ActivityBucket) -> float:
    return float((bucket.ended or {}).get("failed", 0))


def _cost(bucket: ActivityBucket) -> float | None:
    return bucket.cost_usd


def _ended(bucket: ActivityBucket) -> float:
    return float(sum((bucket.ended or {}).values()))


def _median(bucket: ActivityBucket) -> float | None:
    return bucket.duration_s.p50 if bucket.duration_s else None


def _all_tokens(bucket: ActivityBucket) -> float:
    return float(bucket.input_tokens + bucket.output_tokens)


def _sum(values: Iterable[float | None]) -> float:
    return sum(value or 0.0 for value in values)


def _highest(series: Series) -> str | Markup:
    known = [value for value in series.values if value is not None]
    return f"at most {duration(max(known))}" if known else "-"


def _number(value: float) -> str:
    return f"{round(value):,}"
