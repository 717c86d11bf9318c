"""Samplings: live runs of agents that a model judges."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Index, text

from nova_workers.base.vocabulary import TrialState

from .base import Table
from .columns import count, fk, id_ref, json, money, number, one_of, string, time


class Sampling(Table, table=True):
    """Which share of the live runs of an agent a model judges, and by what."""

    __tablename__ = "samplings"

    tenant_id: str = fk("tenants.id", primary=True)
    agent_id: str = id_ref(primary=True)
    share: int = count(default=None, comment="Of the runs that succeed, in hundredths of a percent")
    judge: dict[str, Any] = json(comment="contracts.evaluators.Judge; its budget is that of a day")
    looked_until: datetime = time(now=True, comment="The end of the last run that was looked at")
    looked_id: str = string(default="", comment="The id of that run")
    reference_from: datetime = time(now=True, comment="The scores after it are compared with the first of them")
    windows: int = count(comment="How many windows were compared with this reference")
    drift: dict[str, Any] | None = json(null=True, comment="contracts.http.sampling.Drift: the last one")
    created_by: str = id_ref(comment="The key of the request, or the person of its session")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)


class RunSample(Table, table=True):
    """A live run that was chosen to be judged, and its score. Deleted with the run."""

    __tablename__ = "run_samples"
    __table_args__ = (
        one_of("state", TrialState),
        # Those that the sweep moves forward.
        Index("ix_run_samples__open", "tenant_id", "agent_id", "run_id", postgresql_where=text("state <> 'done'")),
        Index(None, "tenant_id", "agent_id", "judged_at"),
    )

    run_id: str = fk("runs.id", primary=True)
    tenant_id: str = id_ref()
    agent_id: str = id_ref()
    agent_version: int | None = count(null=True, default=None, comment="That the run used")
    thread_id: str = id_ref()
    state: str = string(default="pending")
    judge_run_id: str | None = id_ref(null=True)
    score: float | None = number(null=True, comment="From 0 to 1; null is not judged")
    reason: str | None = string(null=True)
    cost_usd: Decimal | None = money()
    judged_at: datetime | None = time(null=True)
    created_at: datetime = time(now=True)
