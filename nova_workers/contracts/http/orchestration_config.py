"""The HTTP contract of the configuration of orchestrations, and of the models that they choose from."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from nova_workers.base.vocabulary import JudgementStatus, ModelTier, RankingSource, TaskCategory
from nova_workers.contracts.authors.rights import DOCUMENT, authored
from nova_workers.contracts.bodies import Body, View

MAX_CONFIG_CHARS = 262_144

_Yaml = Annotated[str, Field(max_length=MAX_CONFIG_CHARS)]


@authored(
    text=DOCUMENT,
    models_text=DOCUMENT,
)
class OrchestrationConfigPut(Body):
    """A whole configuration, in YAML."""

    text: _Yaml
    """The seven sections."""
    models_text: _Yaml = ""
    """A ``models.yaml``: the sections `models` and `model_registry`, over which those of `text` win."""


class OrchestrationConfigView(View):
    """A version of the configuration of orchestrations."""

    version: int
    """0 if none was ever stored: the defaults apply."""
    text: str
    models_text: str
    created_by: str
    """`person`, `discovery`, or `default` for version 0."""
    created_at: datetime | None


class OrchestrationConfigInfo(View):
    """A version, without its texts."""

    version: int
    created_by: str
    created_at: datetime
    size_bytes: int


class RankedScoreView(View):
    """How good a model is for a kind of work."""

    category: TaskCategory
    score: float
    """A number from 0 to 1, which the choice compares."""
    source: RankingSource
    """`ledger`: ended runs, and with few of them also what follows. `judgement`: the judge's answer. `static`: the
    affinity."""
    affinity: float
    """The score before anything is learned or judged."""
    judgement: float | None = None
    """What the tenant's judge answered. It takes the place of the affinity, unless the configuration sets that."""
    samples: int
    """Ended runs of agents that `score` was learned from; too few do not count."""
    success_rate: float | None = None
    mean_cost_usd: float | None = None
    mean_duration_ms: float | None = None


class OrchestrationModelView(View):
    """A model that orchestrations know."""

    model_id: str
    provider: str
    names: list[str]
    """Aliases of the configuration that stand for it."""
    tier: ModelTier
    cost_factor: float
    """Cost in relation to the usual model, which is 1."""
    speed_factor: float
    """Speed in relation to the usual model, which is 1."""
    max_context_window: int | None = None
    source: Literal["installed", "configured"]
    """Whether an installed library lists it, or only the configuration."""
    enabled: bool
    permitted: bool
    """Whether `peer_models` permits it to agents."""
    unavailable: str | None = None
    """Why its provider cannot be had; null if it can."""
    checked_at: datetime | None = None
    """When a worker last tried the providers. Null: no report is fresh, and the settings of the API process decide."""
    scores: list[RankedScoreView]
    """One for each kind of work."""


class JudgementView(View):
    """What the tenant's judge of models was asked last."""

    judge: str
    """The model that was asked last."""
    status: JudgementStatus
    asked_at: datetime
    ended_at: datetime | None = None
    error: str | None = None
    """Why the last question had no valid answer; the scores of an earlier one stay."""
    judged_at: datetime | None = None
    """When the scores that count were given; null if none ever were."""
    judged_by: str | None = None
    """The model that gave them."""
