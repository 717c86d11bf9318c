"""Plots: of Home in all, and by agent or model; of feedback by version."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from nova_workers.console.drawing.charts import Series, lines, stacked_bars
from nova_workers.console.drawing.feedback import plots_of as plots_of_feedback
from nova_workers.console.drawing.usage import begin_of_period_before
from nova_workers.console.drawing.usage import plots_of as plots_of_usage
from nova_workers.console.pages.home.plots import PERIODS, Past, Period, plots_by_key, plots_of_all, split
from nova_workers.contracts.http.feedback import FeedbackFigures, FeedbackReport
from nova_workers.contracts.http.overview.activity import ActivityBucket, ActivityGrouping, ActivityView, Spread
from nova_workers.contracts.http.usage_report import UsageReport, UsageSum

_BEGIN = datetime(2026, 11, 22, 23, tzinfo=UTC)
_NO_PAST = Past("the day before", [])


def _bucket(at: int, key: str | None = None, runs: int = 0, tokens: int = 0) -> ActivityBucket:
    since = _BEGIN + timedelta(hours=at)
    spread = Spread(p50=float(runs), p95=runs * 2.0) if runs else None
    return ActivityBucket(
        since=since, until=since + timedelta(hours=1), key=key, ended={"succeeded": runs, "failed": 0},
        duration_s=spread, model_calls=runs, input_tokens=tokens, cost_usd=tokens / 1_000 if tokens else None,
    )  # fmt: skip


def _view(buckets: list[ActivityBucket], group_by: ActivityGrouping | None = None) -> ActivityView:
    return ActivityView(
        bucket="hour", group_by=group_by, since=_BEGIN, until=_BEGIN + timedelta(hours=3), timezone="Europe/Berlin",
        buckets=buckets,
    )  # fmt: skip


def test_plots_of_all_have_totals_in_their_legends_and_the_fleets_hours() -> None:
    ended, took, used, cost = plots_of_all(
        _view([_bucket(0), _bucket(1, runs=2, tokens=500), _bucket(2, runs=1)]), _NO_PAST
    )
    assert ended.title == "Runs that ended, by hour"
    assert ended.legend == [("good", "succeeded", "3"), ("bad", "failed", "0")]
    assert "00:00</text>" in ended.svg
    assert took.legend == [("main", "median", "at most 2.0 s"), ("second", "95 of 100", "at most 4.0 s")]
    assert used.legend[0] == ("main", "input", "500")
    assert cost.legend == [("main", "USD", "$0.50")]
    assert '<a class="at" href="/runs?since=2026-11-23T00%3A00%3A00%2B00%3A00&amp;until=2026-11-23T01' in ended.svg
    assert "<title>01:00\n2 succeeded</title>" in ended.svg
    assert 'aria-label="01:00: 2 succeeded" data-kinds="good"' in ended.svg
    assert "sort=duration" in took.svg


def test_the_period_before_is_a_line_of_the_same_scale() -> None:
    hours = [_bucket(0, runs=8, tokens=80), _bucket(1), _bucket(2, runs=1, tokens=10), _bucket(3, runs=2, tokens=20)]
    shown, past = split(_view(hours), Period("Two hours", "the two before", "hour", 2, timedelta(hours=2)))
    assert [bucket.since for bucket in shown.buckets] == [bucket.since for bucket in hours[2:]]
    ended, took, used, cost = plots_of_all(shown, past)
    assert ended.legend[-1] == ("before", "the two before", "8")
    assert 'aria-label="02:00: 1 succeeded, 8 the two before" data-kinds="good before"' in ended.svg
    assert "at most 8 runs" in ended.svg
    assert took.legend[-1] == ("before", "median the two before", "at most 8.0 s")
    assert (used.legend[-1][2], cost.legend[-1][2]) == ("80", "$0.0800")
    grouped = [_bucket(2, "nova", runs=1, tokens=10)]
    by_agent = plots_by_key(_view(grouped, "agent"), shown.buckets, past)
    assert [plot.legend[-1][0] for plot in by_agent] == ["before", "c0", "before", "before"]
    assert {period.length / period.buckets for period in PERIODS.values()} == {
        timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
    }  # fmt: skip


def test_one_column_of_a_plot_is_a_stop_of_the_tab_key_and_all_have_a_line() -> None:
    for links in ([], ["/a", "/b", "/c"]):
        svg = str(stacked_bars("Runs", ["a", "b", "c"], [Series("runs", "main", [1.0, 2.0, 0.0])], links=links))
        assert re.findall(r'tabindex="(-?\d)"', svg) == ["-1", "-1", "0"]
        assert svg.count('class="cross"') == 3


def test_usage_has_all_days_also_those_without_a_run() -> None:
    def report(begin: datetime, days: dict[str, int], until: datetime) -> UsageReport:
        groups = [UsageSum(key=day, input_tokens=count, cost_usd=count / 100) for day, count in days.items()]
        return UsageReport(
            group_by="day", since=begin, until=until, timezone="Europe/Berlin", groups=groups,
            groups_total=len(groups), total=UsageSum(),
        )  # fmt: skip

    begin = datetime(2026, 10, 23, 22, tzinfo=UTC)
    three = report(begin, {"2026-10-26": 300, "2026-10-24": 100}, datetime(2026, 10, 26, 12, tzinfo=UTC))
    assert begin_of_period_before(three) == datetime(2026, 10, 20, 22, tzinfo=UTC)
    cost, used = plots_of_usage(three, report(begin - timedelta(days=3), {"2026-10-22": 200}, begin))
    assert re.findall(r">(\d\d-\d\d)</text>", cost.svg) == ["10-24", "10-25", "10-26"]
    assert 'aria-label="10-25: 2 the period before"' in cost.svg
    assert "/runs?since=2026-10-25T00%3A00%3A00%2B02%3A00&amp;until=2026-10-26T00%3A00%3A00%2B01%3A00" in cost.svg
    assert used.legend == [("main", "input", "400"), ("second", "output", "0"), ("before", "the period before", "200")]
    year = report(begin - timedelta(days=400), {"2026-10-24": 5}, begin)
    assert plots_of_usage(year, three)[0].title == "Cost by week"


def test_agents_have_colours_of_their_own_and_those_beyond_five_are_one() -> None:
    hours = [_bucket(at) for at in range(3)]
    grouped = [_bucket(1, f"agent-{at}", runs=1, tokens=1_000 * (9 - at)) for at in range(7)]
    grouped.append(_bucket(2, "agent-0", runs=4, tokens=50))
    ended, took, used, _ = plots_by_key(_view(grouped, "agent"), hours, _NO_PAST)
    assert [entry[:2] for entry in ended.legend] == [
        *((f"c{at}", f"agent-{at}") for at in range(5)),
        ("c5", "others"),
    ]
    assert ended.legend[0][2] == "5"
    assert ended.legend[5][2] == "2"
    assert used.legend[5][2] == "7k"
    assert len(took.legend) == 5
    assert took.svg.count("<circle") == 6


def test_models_are_counted_by_calls_and_nothing_is_nothing() -> None:
    hours = [_bucket(at) for at in range(3)]
    calls, *_ = plots_by_key(_view([_bucket(0, None, runs=3)], "model"), hours, _NO_PAST)
    assert calls.title == "Model calls, by hour and model"
    assert calls.legend == [("c0", "unknown", "3")]
    assert all(plot.legend == [] for plot in plots_by_key(_view([], "agent"), hours, _NO_PAST))


def test_a_line_has_gaps_and_escapes_its_names() -> None:
    svg = str(lines("Time", ["a", "<b>", "c", "d"], [Series("<i>", "c0", [1.0, None, 2.0, 4.0])], "s"))
    assert svg.count("<circle") == 3
    assert 'd="M75.0 94.0M375.0' in svg
    assert [text for text in re.findall(r">([^<]+)</text>", svg) if text[0].isdigit()] == ["1", "2", "3", "4 s"]
    assert "<title>c\n2 s &lt;i&gt;</title>" in svg
    assert "<title>&lt;b&gt;\nnothing</title>" in svg
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert 'aria-label="Time, at most 4 s"' in svg


def test_feedback_is_drawn_by_version_the_oldest_first() -> None:
    def figures(version: int | None, name: str, up: int, down: int, score: float | None) -> FeedbackFigures:
        return FeedbackFigures(
            agent_version=version, name=name, count=up + down, up=up, down=down, mean_score=score
        )  # fmt: skip

    known = [
        figures(8, "rating", 6, 2, 0.5), figures(7, "rating", 1, 3, -0.5), figures(8, "tone", 1, 0, 1.0),
        figures(8, "topic", 0, 0, None), figures(None, "rating", 9, 9, 0.0),
    ]  # fmt: skip
    ratings, scores = plots_of_feedback(FeedbackReport(agent_id="nova", since=_BEGIN, figures=known))
    assert ratings.legend == [("good", "rated up", "7"), ("bad", "rated down", "5")]
    assert 'aria-label="v7: 3 down, 1 up" data-kinds="bad good"' in ratings.svg
    assert ratings.svg.index(">v7</text>") < ratings.svg.index(">v8</text>")
    assert 'href="/runs?agent=nova&amp;version=8"' in ratings.svg
    assert scores.legend == [("c0", "rating", "+0.50"), ("c1", "tone", "+1.00")]
    assert plots_of_feedback(FeedbackReport(agent_id="nova", since=_BEGIN, figures=[known[-1]])) == []
