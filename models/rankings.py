"""What the fleet has learned about models."""

from datetime import datetime
from decimal import Decimal

from models.base import Table
from models.columns import count, fk, money, number, one_of, string, time
from nova_workers.vocabulary import TaskCategory

__all__ = ["ModelRanking"]


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
