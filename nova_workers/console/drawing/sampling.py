"""The scores of an agent's live runs over time, as a plot."""

from itertools import groupby

from nova_workers.console.drawing.charts import Plot, Series, lines
from nova_workers.contracts.http.sampling import SamplingView, ScorePeriod

_TITLE = "Mean score of judged runs"


def plot_of(sampling: SamplingView) -> Plot:
    """Return the mean score of each day of which there is one."""
    days = [(day, list(periods)) for day, periods in groupby(sampling.periods, key=lambda one: one.day)]
    values = [_mean(periods) for _, periods in days]
    judged = sum(one.judged for one in sampling.periods)
    series = [Series("score", "main", values)]
    legend = [("main", f"score, of {judged:,} judged runs", _shown(_mean(sampling.periods)))]
    return Plot(_TITLE, lines(_TITLE, [f"{day:%m-%d}" for day, _ in days], series), legend)


def _mean(periods: list[ScorePeriod]) -> float | None:
    judged = sum(one.judged for one in periods)
    return sum((one.mean_score or 0.0) * one.judged for one in periods) / judged if judged else None


def _shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"
