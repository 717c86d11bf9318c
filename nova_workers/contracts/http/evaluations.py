"""The HTTP contract of evaluations: versions of an agent that answer the examples of a dataset."""

from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator

from nova_workers.base.vocabulary import EvaluationStatus, FinishStatus, TrialArm, TrialState, VerdictStatus
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, Name, View
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.evaluators import Evaluator, Exact, Judge
from nova_workers.contracts.http.datasets import DatasetName, Tags, Word

MAX_EVALUATORS: Final = 20
MAX_REPEATS: Final = 20
MAX_TRIALS: Final = 20_000
"""Most answers of an evaluation: examples, times repetitions, times versions."""
MAX_OPEN_EVALUATIONS: Final = 10
"""Most evaluations of a tenant at once."""
MAX_ANSWER_CHARS: Final = 20_000
"""How much of an answer is kept with its verdicts."""
MAX_REGRESSIONS: Final = 200
"""How many of the worst examples a result names."""

_Version = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ToolReplay(Body):
    """What answers tool calls: the result of an equal call of the example, else by rule. No other tool runs."""

    missing: Literal["fail", "read_only"] = "fail"
    """The rule for a call that the example does not have: it fails, and the model gets the reason, or it runs if its
    tool declares that it only reads."""
    stand_ins: Annotated[dict[Name, Annotated[str, StringConstraints(max_length=20_000)]], Field(max_length=50)] = (
        Field(default_factory=dict[str, str])
    )
    """By tool, the result of calls that the example does not have."""
    live: Annotated[tuple[Name, ...], Field(max_length=50)] = ()
    """Tools that run as usual."""

    @model_validator(mode="after")
    def _has_one_rule_each(self) -> Self:
        both = set(self.live) & set(self.stand_ins)
        if both:
            raise ValueError(f"{min(both)!r} is in live and in stand_ins")
        return self


class EvaluationStart(Body):
    """An evaluation to start. Its runs are in the background, after all others of the tenant."""

    agent: AgentId
    version: _Version
    """The candidate."""
    against: _Version | None = None
    """The version that it is compared with."""
    dataset: DatasetName
    dataset_version: _Version | None = None
    """Null is the present one."""
    split: Word | None = None
    tags: Tags = ()
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    """How often each version answers each example."""
    evaluators: Annotated[tuple[Evaluator, ...], Field(min_length=1, max_length=MAX_EVALUATORS)] = (Exact(),)
    tools: ToolReplay = ToolReplay()
    budget_usd: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    """The evaluation is refused if the estimate is above it, and stops when it is spent."""
    threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """The part of the candidate's verdicts that must be passed. What is not judged is not passed."""
    dry_run: StrictBool = False
    """Only estimate: nothing is started."""

    @model_validator(mode="after")
    def _compares_two(self) -> Self:
        if self.against == self.version:
            raise ValueError("against is the same version: give another one, or none")
        if self.against is None and any(isinstance(one, Judge) and one.pairwise for one in self.evaluators):
            raise ValueError("a pairwise judge compares two versions: give against")
        return self


class ArmFigures(View):
    """The answers of one version."""

    trials: int
    succeeded: int
    """How many runs succeeded."""
    passed: int
    """How many verdicts are passed."""
    failed: int
    not_judged: int
    pass_rate: float | None
    """The part of all verdicts that is passed; null without any."""
    cost_usd: float | None
    """Null where a price is unknown."""
    mean_cost_usd: float | None
    mean_seconds: float | None


class DifferenceView(View):
    """The mean difference candidate - baseline over the examples that both have, and its 95 % interval."""

    pairs: int
    unpaired: int
    """Examples that one of both lacks, such as those that were not judged."""
    mean: float | None
    low: float | None
    high: float | None
    is_clear: bool
    """Whether the interval excludes that there is no difference."""


class CalibrationView(View):
    """How far a judge agrees with people, on answers of earlier runs that people rated.

    Of fewer answers than `least` the figures are null: too few.
    """

    answers: int
    """How many both scored."""
    least: int
    not_judged: int
    """How many the judge could not judge."""
    agreement: float | None = None
    """The part that both find good, or both bad."""
    rank_correlation: float | None = None
    """Spearman's; null if one of both gave all answers the same score."""
    mean_difference: float | None = None
    """The judge's score less that of people, both from 0 to 1: above 0 the judge is too mild."""


class EvaluatorFigures(View):
    """The verdicts of one evaluator."""

    evaluator: JsonObject
    passed: int
    """Those of the candidate, as `failed`, `not_judged` and `mean_score`."""
    failed: int
    not_judged: int
    mean_score: float | None
    baseline_mean_score: float | None
    difference: DifferenceView | None
    """The difference of the scores; null without a baseline."""
    calibration: CalibrationView | None = None
    """How a judge agrees with people; null of other evaluators, and of judges that are not calibrated."""


class Regression(View):
    """An example that the candidate answers worse than the baseline: by its mean score over all evaluators."""

    key: str
    candidate: float
    baseline: float


class EvaluationResult(View):
    """What an evaluation found."""

    candidate: ArmFigures
    baseline: ArmFigures | None
    evaluators: list[EvaluatorFigures]
    score: DifferenceView | None
    """The difference of the mean score over all evaluators; null without a baseline, as the two below."""
    cost_usd: DifferenceView | None
    seconds: DifferenceView | None
    regressions: list[Regression]
    """The worst first, at most 200."""
    meets_threshold: bool | None
    """Null without a threshold."""


class EvaluationView(View):
    """An evaluation."""

    id: str
    agent: str
    version: int
    against: int | None
    dataset: str
    dataset_version: int
    split: str | None
    tags: list[str]
    repeats: int
    evaluators: list[JsonObject]
    tools: ToolReplay
    budget_usd: float | None
    threshold: float | None
    estimate_usd: float | None
    status: EvaluationStatus
    why: str | None
    trials: int
    """How many answers it has in all."""
    done: int
    """How many are there."""
    spent_usd: float | None
    """What the answers and the judges cost."""
    judges_spent_usd: float | None = None
    """What the models that judge cost; null without any."""
    result: EvaluationResult | None
    """When it has ended."""
    rollout_id: str | None = None
    """The rollout of which it is the shadow."""
    created_by: str
    created_at: datetime
    finished_at: datetime | None


class EvaluationStarted(View):
    """An evaluation that was started, or would be."""

    id: str | None
    """Null of a dry run."""
    trials: int
    estimate_usd: float | None
    """The mean cost of the latest runs of the agent, times the answers, and that of models that judge, at most
    their budgets; null if the agent has none of known cost."""


class VerdictView(View):
    """What an evaluator says of an answer."""

    status: VerdictStatus
    score: float | None
    """A number from 0 to 1."""
    reason: str


class TrialView(View):
    """One answer to one example."""

    id: str
    key: str
    example_id: str
    arm: TrialArm
    repeat: int
    state: TrialState
    run_id: str | None
    """Its run is deleted a day after its end."""
    outcome: FinishStatus | None
    answer: str | None
    error: str | None
    calls: list[JsonObject]
    verdicts: list[VerdictView]
    """One for each evaluator, in their order."""
    cost_usd: float | None
    seconds: float | None
    steps: int | None
