"""The plot of an agent's scores."""

from __future__ import annotations

from datetime import UTC, date, datetime

from nova_workers.console.drawing.sampling import plot_of
from nova_workers.contracts.evaluators import Judge
from nova_workers.contracts.http.sampling import SamplingView, ScorePeriod

_NOW = datetime(2026, 5, 2, tzinfo=UTC)


def test_a_day_has_the_mean_over_its_versions() -> None:
    periods = [
        ScorePeriod(day=date(2026, 5, 1), version=1, judged=3, not_judged=0, mean_score=1.0),
        ScorePeriod(day=date(2026, 5, 1), version=2, judged=1, not_judged=1, mean_score=0.0),
        ScorePeriod(day=date(2026, 5, 2), version=2, judged=0, not_judged=2, mean_score=None),
    ]
    sampling = SamplingView(
        agent="nova",
        percent=5,
        judge=Judge(rubric="x", budget_usd=1),
        created_by="key_1",
        created_at=_NOW,
        updated_at=_NOW,
        spent_today_usd=0,
        open=0,
        drift=None,
        reference=4,
        periods=periods,
    )
    plot = plot_of(sampling)
    assert plot.legend == [("main", "score, of 4 judged runs", "0.75")]
    assert plot.svg.count("<circle") == 1
    assert "05-01" in plot.svg
