"""A rollout in pictures and words: both versions over time, and how far each guardrail is from its limit."""

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Final, NamedTuple

from markupsafe import Markup

from nova_workers.base.vocabulary import GuardrailMeasure
from nova_workers.console.drawing.charts import Plot, Series, lines, stacked_bars
from nova_workers.console.formats import duration, usd
from nova_workers.contracts.http.rollouts import (
    GuardrailState,
    RolloutHistory,
    RolloutLook,
    RolloutView,
    VersionFigures,
)

_FAR, _SOME_WAY = 100.0, 10.0
"""How many times as probable as its limit a difference is: from there on it is far from it, or some way."""
_NO_SIGN = 0.5


class Standing(NamedTuple):
    """How a guardrail stands. `tone` is that of a badge, `text` says why."""

    tone: str
    title: str
    text: str


def plots_of(history: RolloutHistory) -> list[Plot]:
    """Return the plots of both versions over the time of a rollout."""
    return [
        _runs(history),
        _lines(history, "Runs that failed", "%", _failed, _percent),
        _lines(history, "Mean cost of a run", "USD", lambda figures: figures.mean_cost_usd, usd),
        _lines(history, "Mean time of a run", "s", lambda figures: figures.mean_latency_s, duration),
        _lines(history, "Mean score of feedback", "", lambda figures: figures.mean_score, _score, lowest=-1.0),
    ]


def describe_guardrail(state: GuardrailState, rollout: RolloutView) -> Standing:
    """Return how far a guardrail is from stopping the candidate, in words."""
    last = state.last
    if last is None:
        if state.next_look is None or state.values >= state.next_look:
            return Standing("warn", "Not judged", f"Version {rollout.baseline_version} had too few values.")
        return Standing("idle", "Not judged yet", _ahead(state))
    what = f"{_both(last, rollout)}. {_chance(last)}"
    title, tone = _distance(last)
    return Standing(tone, title, f"{what} {_ahead(state)}" if title != "Broken" else what)


def _distance(look: RolloutLook) -> tuple[str, str]:
    """Return how far the probability of a look is from the one at which the candidate stops, and its colour."""
    if look.p_value <= look.threshold:
        return "Broken", "bad"
    if look.p_value >= _NO_SIGN:
        return "No sign that it is worse", "good"
    times = look.p_value / look.threshold
    if times >= _FAR:
        return "Far from its limit", "good"
    return ("Some way from its limit", "good") if times >= _SOME_WAY else ("Near its limit", "warn")


def _both(look: RolloutLook, rollout: RolloutView) -> str:
    shown, of = _WORDS[look.measure]
    return (
        f"{shown(look.candidate_mean)} {of} in {look.look:,} of version {rollout.version}, "
        f"{shown(look.baseline_mean)} in {look.baseline_values:,} of version {rollout.baseline_version}"
    )


def _chance(look: RolloutLook) -> str:
    return (
        f"Equal versions differ as much in {_percent(look.p_value * 100)} of cases; it stops at "
        f"{_percent(look.threshold * 100)}."
    )


def _ahead(state: GuardrailState) -> str:
    if state.next_look is None:
        return "It was judged for the last time."
    return f"It is judged next with {state.next_look:,} values; there are {state.values:,}."


def _runs(history: RolloutHistory) -> Plot:
    title = "Runs that ended"
    series = [
        Series(name, kind, [float(figures.runs) for figures in _over_time(history, is_candidate)])
        for name, kind, is_candidate in _versions(history)
    ]
    legend = [(each.kind, each.title, f"{sum(value or 0 for value in each.values):,.0f}") for each in series]
    return Plot(title, stacked_bars(title, _labels(history), series, "runs"), legend)


def _lines(
    history: RolloutHistory,
    title: str,
    unit: str,
    value: Callable[[VersionFigures], float | None],
    shown: Callable[[float], str | Markup],
    *,
    lowest: float = 0.0,
) -> Plot:
    series = [
        Series(name, kind, [value(figures) for figures in _over_time(history, is_candidate)])
        for name, kind, is_candidate in _versions(history)
    ]
    in_all = [value(history.candidate), value(history.baseline)]
    legend = [
        (each.kind, each.title, "-" if total is None else shown(total))
        for each, total in zip(series, in_all, strict=True)
    ]
    return Plot(title, lines(title, _labels(history), series, unit, lowest=lowest), legend)


def _versions(history: RolloutHistory) -> tuple[tuple[str, str, bool], ...]:
    rollout = history.rollout
    return (
        (f"version {rollout.version}", "c0", True),
        (f"version {rollout.baseline_version}", "c2", False),
    )


def _over_time(history: RolloutHistory, is_candidate: bool) -> list[VersionFigures]:
    return [period.candidate if is_candidate else period.baseline for period in history.periods]


def _labels(history: RolloutHistory) -> list[str]:
    span = history.periods[-1].until - history.periods[0].since
    form = "%H:%M" if span <= timedelta(days=1) else "%m-%d"
    return [f"{period.since.astimezone(UTC):{form}}" for period in history.periods]


def _failed(figures: VersionFigures) -> float | None:
    return 100 * figures.failed / figures.runs if figures.runs else None


def _percent(value: float) -> str:
    return f"{value:.2g} %" if value < 10 else f"{value:.0f} %"


def _score(value: float) -> str:
    return f"{value:+.2f}"


_WORDS: Final[dict[GuardrailMeasure, tuple[Callable[[float], str | Markup], str]]] = {
    "failure": (lambda part: _percent(100 * part), "failed"),
    "cost": (usd, "a run"),
    "latency": (duration, "a run"),
    "feedback": (_score, "on average"),
    "judge": ("{:.2f}".format, "on average"),
}
"""How the mean of each measure is shown, and of what it is."""
