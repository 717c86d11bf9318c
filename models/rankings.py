"""What the fleet has learned about models."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from nova_workers.base.vocabulary import JudgementStatus, TaskCategory

from .base import Table
from .columns import count, fk, json, money, number, one_of, string, time


class ModelRanking(Table, table=True):
    """How a model did in a kind of work, in agents of a tenant's orchestrations. Recomputed daily from their runs."""

    __tablename__ = "model_rankings"
    __table_args__ = (one_of("category", TaskCategory),)

    tenant_id: str = fk("tenants.id", primary=True)
    category: str = string(primary=True)
    model: str = string(primary=True, comment="As usage names it")
    samples: int = count(comment="Ended runs; those that failed for reasons of the fleet are left out")
    success_rate: float = number()
    mean_cost_usd: Decimal | None = money(comment="Of a run; null if no cost is known")
    mean_duration_ms: float | None = number(null=True, comment="Of a run")
    score: float = number(comment="0 to 1: success, with cost and time in relation to the best of the category")
    refreshed_at: datetime = time(now=True)


class ModelJudgement(Table, table=True):
    """What a tenant's judge, a model, was asked last about models, and what it last answered. At most once a day."""

    __tablename__ = "model_judgements"
    __table_args__ = (one_of("status", JudgementStatus),)

    tenant_id: str = fk("tenants.id", primary=True)
    judge: str = string(comment="The id of the model that was asked last")
    status: str = string(comment="Of the last question")
    asked_at: datetime = time()
    ended_at: datetime | None = time(null=True)
    error: str | None = string(null=True, comment="Why the last question had no valid answer")
    scores: dict[str, Any] = json(default="'{}'", comment="Of the last valid answer: by model and category, 0 to 1")
    judged_at: datetime | None = time(null=True, comment="When `scores` were given")
    judged_by: str | None = string(null=True, comment="The model that gave `scores`")
