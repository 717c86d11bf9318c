"""The HTTP contract of sampling: a share of the live runs of an agent is judged, for its quality over time."""

from datetime import date, datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.evaluators import Judge


class SamplingPut(Body):
    """Which share of the live runs of an agent is judged, and by what."""

    percent: Annotated[float, Field(ge=0.01, le=100, allow_inf_nan=False)]
    """The share of the runs that succeed, exact to a hundredth."""
    judge: Judge
    """The judge is that of an evaluation. It needs a rubric; `budget_usd` is that of a day in the tenant's zone."""

    @model_validator(mode="after")
    def _judges_alone(self) -> Self:
        if self.judge.pairwise:
            raise ValueError("judge: a live run has one answer; pairwise needs two")
        if self.judge.rubric is None:
            raise ValueError("judge: give it a rubric: a live run has none")
        return self


class Drift(View):
    """A change of the scores that its test found."""

    found_at: datetime
    before: float
    """The mean score of the reference."""
    after: float
    """The mean score of the window that differs from it."""
    p_value: float
    """The probability of so low a window, or a lower one, if nothing had changed."""
    threshold: float


class ScorePeriod(View):
    """The judged runs of one version on one day, in UTC."""

    day: date
    version: int | None
    judged: int
    not_judged: int
    mean_score: float | None
    """A number from 0 to 1; null if none was judged."""


class SamplingView(View):
    """What is judged of an agent, and the scores over time."""

    agent: str
    percent: float
    judge: Judge
    created_by: str
    created_at: datetime
    updated_at: datetime
    spent_today_usd: float
    open: int
    """Chosen runs that wait for the judge."""
    drift: Drift | None
    """The last one."""
    reference: int
    """How many scores the present reference has; the test begins once it has 100."""
    periods: list[ScorePeriod]
    """The last 30 days by day and version, oldest first."""
