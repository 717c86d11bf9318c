"""A rollout in pictures and words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import GuardrailMeasure
from nova_workers.console.drawing.charts import Series, lines
from nova_workers.console.drawing.rollouts import describe_guardrail, plots_of
from nova_workers.contracts.http.rollouts import (
    STEPS,
    GuardrailState,
    RolloutHistory,
    RolloutLook,
    RolloutPeriod,
    RolloutStep,
    RolloutView,
    VersionFigures,
)
from nova_workers.contracts.rollout_steps import parse_step, write_step
from nova_workers.domain.rollouts.rules.reports import MOST_PERIODS, periods_of

_BEGIN = datetime(2026, 11, 22, 23, tzinfo=UTC)
_ROLLOUT = RolloutView(
    id="rol_1", agent_id="nova", version=8, baseline_version=7, status="running", steps=list(STEPS), step=0, percent=1,
    step_ends_at=None, guardrails=[], min_runs=10, metadata={}, key_id=None, breach=None, reason=None,
    created_at=_BEGIN, updated_at=_BEGIN, ended_at=None,
)  # fmt: skip


def _state(measure: GuardrailMeasure, p_value: float, *means: float, next_look: int | None = 100) -> GuardrailState:
    candidate, baseline = means
    look = RolloutLook(
        measure=measure, look=50, p_value=p_value, threshold=0.001, candidate_mean=candidate, baseline_mean=baseline,
        baseline_values=500,
    )  # fmt: skip
    return GuardrailState(measure=measure, tolerance=0, values=62, last=look, next_look=next_look)


@pytest.mark.parametrize(
    ("p_value", "title", "tone"),
    [
        (0.001, "Broken", "bad"),
        (0.005, "Near its limit", "warn"),
        (0.05, "Some way from its limit", "good"),
        (0.2, "Far from its limit", "good"),
        (0.6, "No sign that it is worse", "good"),
    ],
)
def test_a_guardrail_is_as_far_from_its_limit_as_its_probability(p_value: float, title: str, tone: str) -> None:
    standing = describe_guardrail(_state("failure", p_value, 0.06, 0.04), _ROLLOUT)
    assert (standing.title, standing.tone) == (title, tone)
    assert standing.text.startswith("6 % failed in 50 of version 8, 4 % in 500 of version 7.")


def test_a_guardrail_says_what_equal_versions_would_do_and_when_it_is_judged_next() -> None:
    standing = describe_guardrail(_state("latency", 0.05, 1.5, 1.2), _ROLLOUT)
    assert standing.text == (
        "1.5 s a run in 50 of version 8, 1.2 s in 500 of version 7. Equal versions differ as much in 5 % of cases; it "
        "stops at 0.1 %. It is judged next with 100 values; there are 62."
    )
    last = describe_guardrail(_state("feedback", 0.7, 0.25, -0.5, next_look=None), _ROLLOUT)
    assert last.text.startswith("+0.25 on average in 50 of version 8, -0.50 in")
    assert last.text.endswith("It was judged for the last time.")


@pytest.mark.parametrize(("values", "title"), [(3, "Not judged yet"), (10, "Not judged")])
def test_a_guardrail_without_a_look_says_why(values: int, title: str) -> None:
    state = GuardrailState(measure="cost", tolerance=0.2, values=values, last=None, next_look=10)
    assert describe_guardrail(state, _ROLLOUT).title == title


def _figures(version: int, runs: int = 0, failed: int = 0, score: float | None = None) -> VersionFigures:
    return VersionFigures(
        version=version, runs=runs, failed=failed, mean_cost_usd=0.02 if runs else None,
        mean_latency_s=1.5 if runs else None, rated=int(score is not None), mean_score=score,
    )  # fmt: skip


def test_plots_have_both_versions_side_by_side() -> None:
    arms = [(_figures(8, 4, 1, -0.5), _figures(7, 10)), (_figures(8), _figures(7, 20, 1))]
    periods = [
        RolloutPeriod(
            since=_BEGIN + timedelta(hours=at), until=_BEGIN + timedelta(hours=at + 1), candidate=one, baseline=other
        )
        for at, (one, other) in enumerate(arms)
    ]
    history = RolloutHistory(
        rollout=_ROLLOUT, candidate=arms[0][0], baseline=_figures(7, 30, 1), guardrails=[], periods=periods
    )
    ended, failed, cost, took, score = plots_of(history)
    assert ended.legend == [("c0", "version 8", "4"), ("c2", "version 7", "30")]
    assert failed.legend == [("c0", "version 8", "25 %"), ("c2", "version 7", "3.3 %")]
    assert "<title>23:00\n0 version 7\n25 version 8</title>" in failed.svg
    assert cost.legend[0] == ("c0", "version 8", "$0.0200")
    assert took.legend[1] == ("c2", "version 7", "1.5 s")
    assert score.legend == [("c0", "version 8", "-0.50"), ("c2", "version 7", "-")]


def test_a_plot_of_scores_has_room_below_zero() -> None:
    svg = str(lines("Score", ["a", "b"], [Series("x", "main", [-1.0, 0.5])], lowest=-1.0))
    assert 'd="M150.0 120.0L450.0' in svg
    assert "<title>a\n-1 x</title>" in svg
    assert ">-0.5</text>" in svg


@pytest.mark.parametrize(
    "span", [timedelta(0), timedelta(minutes=5), timedelta(hours=3), timedelta(days=2), timedelta(days=400)]
)
def test_periods_cover_a_rollout_with_few_columns(span: timedelta) -> None:
    periods = periods_of(_BEGIN, _BEGIN + span)
    assert 1 <= len(periods) <= MOST_PERIODS
    assert periods[0][0] == _BEGIN
    assert periods[-1][1] >= _BEGIN + span > periods[-1][0] - timedelta(seconds=1)
    assert all(one[1] == other[0] for one, other in pairwise(periods))


@pytest.mark.parametrize("text", ["1%:1h", "10%:30m:approval", "50%:2d", "99.5%"])
def test_steps_are_read_as_they_are_written(text: str) -> None:
    assert write_step(parse_step(text)) == text


def test_a_step_that_is_none_is_named() -> None:
    assert parse_step(" 10 %:6h ") == RolloutStep(percent=10, hours=6)
    for text, problem in (("ten", "write 10%"), ("10%:6h:yes", "write 10%"), ("101%", "less than or equal to 100")):
        with pytest.raises(InvalidInput, match=problem):
            parse_step(text)
