"""Plots: of Home in all, and by agent or model; of feedback by version."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from nova_workers.console.drawing.charts import Series, lines
from nova_workers.console.drawing.feedback import plots_of as plots_of_feedback
from nova_workers.console.pages.home.plots import plots_by_key, plots_of_all
from nova_workers.contracts.http.feedback import FeedbackFigures, FeedbackReport
from nova_workers.contracts.http.overview.activity import ActivityBucket, ActivityGrouping, ActivityView, Spread

_BEGIN = datetime(2026, 11, 22, 23, tzinfo=UTC)


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
    ended, took, used, cost = plots_of_all(_view([_bucket(0), _bucket(1, runs=2, tokens=500), _bucket(2, runs=1)]))
    assert ended.title == "Runs that ended, by hour"
    assert ended.legend == [("good", "succeeded", "3"), ("bad", "failed", "0")]
    assert "00:00</text>" in ended.svg
    assert took.legend == [("main", "median", "at most 2.0 s"), ("second", "95 of 100", "at most 4.0 s")]
    assert used.legend[0] == ("main", "input", "500")
    assert cost.legend == [("main", "USD", "$0.50")]
    assert '<a href="/runs?since=2026-11-23T00%3A00%3A00%2B00%3A00&amp;until=2026-11-23T01' in ended.svg
    assert "<title>01:00: 2 succeeded</title>" in ended.svg
    assert "sort=duration" in took.svg


def test_agents_have_colours_of_their_own_and_those_beyond_five_are_one() -> None:
    hours = [_bucket(at) for at in range(3)]
    grouped = [_bucket(1, f"agent-{at}", runs=1, tokens=1_000 * (9 - at)) for at in range(7)]
    grouped.append(_bucket(2, "agent-0", runs=4, tokens=50))
    ended, took, used, _ = plots_by_key(_view(grouped, "agent"), hours)
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
    calls, *_ = plots_by_key(_view([_bucket(0, None, runs=3)], "model"), hours)
    assert calls.title == "Model calls, by hour and model"
    assert calls.legend == [("c0", "unknown", "3")]
    assert all(plot.legend == [] for plot in plots_by_key(_view([], "agent"), hours))


def test_a_line_has_gaps_and_escapes_its_names() -> None:
    svg = str(lines("Time", ["a", "<b>", "c", "d"], [Series("<i>", "c0", [1.0, None, 2.0, 4.0])], "s"))
    assert svg.count("<circle") == 3
    assert 'd="M75.0 94.0M375.0' in svg
    assert [text for text in re.findall(r">([^<]+)</text>", svg) if text[0].isdigit()] == ["1", "2", "3", "4 s"]
    assert "<title>c: 2 s &lt;i&gt;</title>" in svg
    assert "<title>&lt;b&gt;: nothing</title>" in svg
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
    assert "<title>v7: 3 down, 1 up</title>" in ratings.svg
    assert ratings.svg.index(">v7</text>") < ratings.svg.index(">v8</text>")
    assert 'href="/runs?agent=nova&amp;version=8"' in ratings.svg
    assert scores.legend == [("c0", "rating", "+0.50"), ("c1", "tone", "+1.00")]
    assert plots_of_feedback(FeedbackReport(agent_id="nova", since=_BEGIN, figures=[known[-1]])) == []
