"""The HTTP contract of rollouts: a version of an agent takes over its conversations in steps."""

from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator

from nova_workers.base.vocabulary import GuardrailMeasure, RolloutStatus
from nova_workers.contracts.authors.rights import BOUND, DOCUMENT, FREE, PARTS, authored
from nova_workers.contracts.bodies import Body, OneLine, View
from nova_workers.contracts.http.agents import MAX_VERSION

MAX_STEPS: Final = 20
_MAX_HOURS: Final = 8_760
_MAX_METADATA: Final = 10

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
_Hours = Annotated[float, Field(gt=0, le=_MAX_HOURS, allow_inf_nan=False)]
_Tolerance = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
_Reason = Annotated[OneLine, StringConstraints(min_length=1, max_length=500)]
_Metadata = Annotated[dict[str, str | int | bool], Field(max_length=_MAX_METADATA)]


@authored(percent=BOUND, hours=BOUND, approval=BOUND)
class RolloutStep(Body):
    """A share of the threads, and how long the candidate has it."""

    percent: Percent
    """Of the threads, exact to a hundredth."""
    hours: _Hours | None = None
    """How long until the next step; after the last one the candidate becomes the current version. Null stays until a
    person advances the rollout."""
    approval: StrictBool = False
    """Whether a person must approve the next step when the time has passed."""


@authored(measure=BOUND, tolerance=BOUND)
class RolloutGuardrail(Body):
    """What stops the candidate when it is worse than the current version."""

    measure: GuardrailMeasure
    tolerance: _Tolerance = 0
    """How much worse it may be: of cost and latency a ratio (0.2 is 20 % more), of scores a difference."""

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        if self.measure == "failure" and self.tolerance:
            raise ValueError("failures have no tolerance; the test itself allows for chance")
        return self


@authored(percent=BOUND, budget_usd=BOUND)
class RolloutShadow(Body):
    """The candidate answers turns of the current version, too. No person sees these answers, and no tool runs."""

    percent: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
    """Of the turns of the current version, exact to a hundredth."""
    budget_usd: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
    """The shadow ends when it is spent."""


class ShadowView(View):
    """The shadow of a rollout."""

    percent: float
    budget_usd: float
    evaluation: str
    """The evaluation that compares the answers of both versions. It ends with the rollout."""
    dataset: str
    """The turns, as examples."""


STEPS: Final = (
    RolloutStep(percent=1, hours=1),
    RolloutStep(percent=10, hours=6),
    RolloutStep(percent=50, hours=24),
    RolloutStep(percent=100, hours=24),
)
GUARDRAILS: Final = (
    RolloutGuardrail(measure="failure"),
    RolloutGuardrail(measure="cost", tolerance=0.2),
    RolloutGuardrail(measure="latency", tolerance=0.2),
    RolloutGuardrail(measure="feedback", tolerance=0.1),
)


@authored(
    version=DOCUMENT,
    steps=PARTS,
    guardrails=PARTS,
    min_runs=BOUND,
    metadata=FREE,
    key_id=FREE,
    shadow=PARTS,
)
class RolloutStart(Body):
    """A version that is to take over an agent's conversations."""

    version: Annotated[int, Field(ge=1, le=MAX_VERSION)]
    """The candidate: any version but the current one."""
    steps: Annotated[tuple[RolloutStep, ...], Field(min_length=1, max_length=MAX_STEPS)] = STEPS
    """Their shares do not fall."""
    guardrails: Annotated[tuple[RolloutGuardrail, ...], Field(max_length=5)] = GUARDRAILS
    """Each measure at most once; none lets only people stop it."""
    min_runs: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """How many runs of the candidate must have ended before a step ends by itself."""
    metadata: _Metadata = Field(default_factory=dict[str, str | int | bool])
    """Only runs with this metadata, such as `{"channel": "telegram"}`."""
    key_id: OneLine | None = None
    """Only threads that this API key began."""
    shadow: RolloutShadow | None = None
    """Null: the candidate answers only its own share."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        shares = [step.percent for step in self.steps]
        if shares != sorted(shares):
            raise ValueError("steps: the share of a step is not below that of the step before")
        measures = [guardrail.measure for guardrail in self.guardrails]
        if len(set(measures)) < len(measures):
            raise ValueError("guardrails: each measure at most once")
        return self


class RolloutAdvance(Body):
    """The step that a rollout is to leave."""

    step: Annotated[int, Field(ge=0, lt=MAX_STEPS)]
    """Its index, as the rollout has it: a repeated request advances it once."""


class RolloutStop(Body):
    """Why a rollout is stopped."""

    reason: _Reason | None = None


class RolloutLook(View):
    """What a guardrail found when it was judged."""

    measure: GuardrailMeasure
    look: int
    """After how many values of the candidate."""
    p_value: float
    """The probability of so large a difference, or a larger one, between equal versions."""
    threshold: float
    """The error that this look may spend."""
    candidate_mean: float
    baseline_mean: float
    baseline_values: int


class RolloutBreach(RolloutLook):
    """What a guardrail found that stopped the candidate: its `p_value` is at most the `threshold`."""


class RolloutView(View):
    """A rollout of a version of an agent."""

    id: str
    agent_id: str
    version: int
    """The candidate."""
    baseline_version: int
    """The version that was current when it began."""
    status: RolloutStatus
    steps: list[RolloutStep]
    step: int
    """Index of the step that it is at, or ended at."""
    percent: float
    """The share of this step."""
    step_ends_at: datetime | None
    """When the next step begins, at the earliest; null if a person must advance it, or it has ended."""
    guardrails: list[RolloutGuardrail]
    min_runs: int
    metadata: dict[str, Any]
    key_id: str | None
    shadow: ShadowView | None = None
    breach: RolloutBreach | None
    """What stopped it, if a guardrail did."""
    reason: str | None
    """Why it ended."""
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class VersionFigures(View):
    """What is known of one version's runs in a rollout."""

    version: int
    runs: int
    """Those that succeeded or failed, of its newest."""
    failed: int
    mean_cost_usd: float | None
    mean_latency_s: float | None
    rated: int
    """Runs with a score."""
    mean_score: float | None


class GuardrailState(View):
    """How far a guardrail of a rollout is."""

    measure: GuardrailMeasure
    tolerance: float
    values: int
    """How many values of the candidate count."""
    last: RolloutLook | None
    """Its last look; null before the first, and if the current version had too few values."""
    next_look: int | None
    """The number of values with which it is judged next; null after the last look."""


class RolloutReport(View):
    """The rollout of an agent, with the figures of both versions."""

    rollout: RolloutView
    candidate: VersionFigures
    baseline: VersionFigures
    guardrails: list[GuardrailState] = Field(default_factory=list[GuardrailState])
    """Those of the rollout, in its order."""


class RolloutPeriod(View):
    """What both versions did in one period of a rollout, by when runs ended and scores were given."""

    since: datetime
    until: datetime
    """Exclusive."""
    candidate: VersionFigures
    baseline: VersionFigures


class RolloutHistory(RolloutReport):
    """A rollout with the figures of both versions over time."""

    periods: list[RolloutPeriod]
    """From its begin until its end, or now; at most 48, of equal length. They count the same runs as the figures."""
