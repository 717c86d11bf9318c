"""Evaluations: versions of an agent that answer the examples of a dataset, and verdicts on their answers."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Index, text

from nova_workers.base.vocabulary import EvaluationStatus, TrialArm, TrialState

from .base import Table
from .columns import big, boolean, count, fk, id_ref, json, money, number, one_of, pk, string, time, words


class Evaluation(Table, table=True):
    """A version of an agent, and perhaps another one, that answer the examples of a dataset."""

    __tablename__ = "evaluations"
    __table_args__ = (
        one_of("status", EvaluationStatus),
        Index(None, "tenant_id", "id"),
        # Those that the tick moves forward.
        Index("ix_evaluations__open", "id", postgresql_where=text("status = 'running'")),
    )

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref()
    version: int = count(default=None, comment="The candidate")
    against: int | None = count(null=True, default=None, comment="The version that it is compared with")
    dataset: str = string(comment="Its name")
    dataset_version: int = count(default=None)
    split: str | None = string(null=True)
    tags: list[str] = words()
    repeats: int = count(default=1)
    evaluators: list[dict[str, Any]] = json(comment="contracts.evaluators.Evaluator")
    tools: dict[str, Any] = json(comment="contracts.http.evaluations.ToolReplay")
    budget_usd: Decimal | None = money(comment="Null is no limit")
    threshold: float | None = number(null=True, comment="The part of verdicts that must be passed")
    estimate_usd: Decimal | None = money(comment="From earlier runs of the agent; null if their cost is not known")
    status: str = string(default="running")
    why: str | None = string(null=True, comment="Why it was stopped")
    trials: int = count(comment="How many it has in all")
    result: dict[str, Any] | None = json(null=True, comment="contracts.http.evaluations.EvaluationResult")
    judging_until: datetime | None = time(null=True, comment="Until when a worker has claimed what takes time to judge")
    rollout_id: str | None = id_ref(null=True, comment="Whose conversations feed it, until the rollout ends")
    created_by: str = id_ref(comment="The key of the request, or the person of its session")
    created_at: datetime = time(now=True)
    finished_at: datetime | None = time(null=True)


class EvaluationTrial(Table, table=True):
    """One answer to one example: the run that gives it, and the verdicts."""

    __tablename__ = "evaluation_trials"
    __table_args__ = (
        one_of("arm", TrialArm),
        one_of("state", TrialState),
        Index(None, "evaluation_id", "state", "id"),
        Index(None, "example_id"),
        Index("ix_evaluation_trials__run", "run_id", unique=True, postgresql_where=text("run_id IS NOT NULL")),
        # Each is updated twice: space for heap-only tuples.
        {"postgresql_with": {"fillfactor": "70"}},
    )

    id: str = pk()
    tenant_id: str = id_ref()
    evaluation_id: str = fk("evaluations.id")
    example_id: str = fk("dataset_examples.id", comment="Deleted with it, and so with the thread of the example")
    key: str = string(comment="Of the example")
    arm: str = string()
    repeat: int = count(default=None)
    state: str = string(default="pending")
    run_id: str | None = id_ref(null=True)
    outcome: str | None = string(null=True, comment="How the run ended")
    answer: str | None = string(null=True, comment="Its beginning; the run is deleted with its ephemeral thread")
    error: str | None = string(null=True)
    calls: list[dict[str, Any]] = json(default="'[]'", comment="Tool calls: tool and arguments")
    verdicts: list[dict[str, Any]] = json(default="'[]'", comment="One for each evaluator: status, score, reason")
    cost_usd: Decimal | None = money()
    tokens: int | None = big(null=True, default=None)
    seconds: float | None = number(null=True)
    steps: int | None = count(null=True, default=None)


class EvaluationJudgement(Table, table=True):
    """One question to a model that judges, and its opinion: of an answer, or of those of both versions."""

    __tablename__ = "evaluation_judgements"
    __table_args__ = (
        one_of("state", TrialState),
        Index(None, "evaluation_id", "state", "id"),
        Index(None, "trial_id"),
        Index(None, "example_id"),
        # What the latest answers of a judge cost.
        Index(None, "tenant_id", "judge_version", "finished_at"),
        {"postgresql_with": {"fillfactor": "70"}},
    )

    id: str = pk()
    tenant_id: str = id_ref()
    evaluation_id: str = fk("evaluations.id")
    trial_id: str | None = fk("evaluation_trials.id", null=True, comment="The answer; of a pair that of the candidate")
    other_trial_id: str | None = id_ref(null=True, comment="The answer of the baseline, in a pair")
    example_id: str | None = fk(
        "dataset_examples.id", null=True, comment="The example whose own answer, which people rated, is judged instead"
    )
    human_score: float | None = number(null=True, comment="The mean of people's scores of that answer, from -1 to 1")
    evaluator: int = count(default=None, comment="The place of the judge among the evaluators")
    is_swapped: bool = boolean(comment="Whether the answer of the baseline comes first")
    state: str = string(default="pending")
    run_id: str | None = id_ref(null=True, comment="Of the judge")
    judge_version: int | None = count(null=True, default=None, comment="The version of the reserved agent that judges")
    score: float | None = number(null=True, comment="From 0 to 1; null is not judged")
    reason: str | None = string(null=True)
    cost_usd: Decimal | None = money()
    finished_at: datetime | None = time(null=True)
